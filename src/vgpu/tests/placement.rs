//! BAR3 as memory: pages that go where the guest's tables show them.

use std::os::fd::AsFd;

mod echoes;

use super::*;
use crate::Bar3;
use crate::placement::{BAR3_MAPPED, WINDOW_GPA};
use gpuvmk_aggregator::protocol::{GuestMapping, GuestTarget};
use gpuvmk_backend::{WindowTables, Windows as _};
use gpuvmk_chip::addr::{Gpa, GuestChannel, GuestVram};
use gpuvmk_pci::mapping::{Access, Mapping};

/// BAR3's own tables.
const WINDOW_DIRECTORY: u64 = 0x20_0000;
const WINDOW_TABLE: u64 = 0x24_0000;
const PAGE: u64 = 0x1000;

struct Direct {
    f: Fixture,
    /// What QEMU maps.
    bar3: Mapping,
    pramin: Mapping,
    /// VRAM as engines see it.
    vram: Arc<Mapping>,
}

fn direct() -> Direct {
    let grant = grant();
    let pieces: Vec<_> = grant
        .window
        .iter()
        .map(|piece| gpuvmk_pci::mapping::FilePiece {
            fd: piece.fd.as_fd(),
            offset: piece.offset,
            size: piece.size,
        })
        .collect();
    let vram = Arc::new(Mapping::granted(&pieces, Access::ReadWrite).unwrap());
    drop(pieces);
    let f = fixture_of(grant, MediatorConfig { bar3: Bar3::Direct, ..MediatorConfig::default() });
    let shared = f.mediator.bar3_memory().unwrap();
    assert_eq!((shared.offset, shared.size), (0, BAR3_MAPPED));
    let bar3 = Mapping::of_file(shared.fd.as_fd(), 0, BAR3_MAPPED, Access::ReadWrite).unwrap();
    let shared = f.mediator.pramin_memory().unwrap();
    let pramin = Mapping::of_file(shared.fd.as_fd(), shared.offset, shared.size, Access::ReadWrite).unwrap();
    Direct { f, bar3, pramin, vram }
}

impl Direct {
    /// BAR3 shows `target` at a page of it once its tables are looked at again.
    fn write_entry(&self, page: u64, entry: u64) {
        let pde = Pde { large: None, small: Some(vram(WINDOW_TABLE)) };
        self.f.write_u64(WINDOW_DIRECTORY, pde.encode());
        self.f.write_u64(WINDOW_TABLE + page * 8, entry);
    }

    fn look(&self) {
        let tables = WindowTables { table: vram(WINDOW_DIRECTORY), is_root: true, end: 64 << 20 };
        self.f.mediator.show_bar3(Some(tables));
    }

    fn show(&self, page: u64, target: PhysicalAddress) {
        self.write_entry(page, Pte { target, read_only: false, privileged: false, kind: 0 }.encode());
        self.look();
    }

    fn hide(&self, page: u64) {
        self.write_entry(page, 0);
        self.look();
    }

    /// By its address in VRAM, as PRAMIN and walks of tables do.
    fn read(&self, address: u64) -> u32 {
        let mut word = [0; 4];
        self.f.mediator.read_memory(vram(address), &mut word).unwrap();
        u32::from_le_bytes(word)
    }

    fn moved(&self) -> u64 {
        self.f.mediator.status().counts.bar3_pages_moved
    }

    fn not_shown(&self) -> u64 {
        self.f.mediator.status().counts.bar3_pages_not_shown
    }

    /// The mappings for engines since the last call.
    fn mapped(&self) -> Vec<(u64, u32, u8, GuestTarget)> {
        let updates = self.f.link.take().into_iter().filter_map(|request| match request {
            Request::UpdateSpace { map, .. } => Some(map),
            _ => None,
        });
        let run = |run: GuestMapping| (run.va.0, run.pages, run.page_shift, run.target);
        updates.flatten().map(run).collect()
    }
}

fn in_bar3(offset: u64) -> GuestTarget {
    GuestTarget::System { address: Gpa(WINDOW_GPA + offset), coherent: true }
}

fn in_vram(address: u64) -> GuestTarget {
    GuestTarget::Vram(GuestVram(address))
}

#[test]
fn page_is_where_bar3_shows_it_by_whatever_way_it_is_reached() {
    let d = direct();
    d.f.write_u32(0x10_0000, 1);
    d.show(3, vram(0x10_0000));

    assert_eq!((d.bar3.read_u32(3 * PAGE), d.read(0x10_0000), d.moved()), (Ok(1), 1, 1));
    d.bar3.write_u32(3 * PAGE + 4, 2).unwrap();
    d.f.write_u32(0x10_0008, 3);
    assert_eq!((d.read(0x10_0004), d.bar3.read_u32(3 * PAGE + 8)), (2, Ok(3)));
    // A neighbour is where it was.
    d.f.write_u32(0x10_1000, 4);
    assert_eq!((d.read(0x10_1000), d.vram.read_u32(0x10_1000)), (4, Ok(4)));

    d.hide(3);
    let words = [0x10_0000, 0x10_0004, 0x10_0008].map(|at| d.vram.read_u32(at).unwrap());
    assert_eq!((words, d.read(0x10_0004)), ([1, 2, 3], 2));
    d.bar3.write_u32(3 * PAGE, 9).unwrap();
    assert_eq!(d.read(0x10_0000), 1);
}

#[test]
fn page_that_bar3_shows_elsewhere_moves_there() {
    let d = direct();
    d.show(3, vram(0x10_0000));
    d.bar3.write_u32(3 * PAGE, 7).unwrap();
    d.write_entry(3, 0);
    d.show(8, vram(0x10_0000));
    assert_eq!((d.bar3.read_u32(8 * PAGE), d.read(0x10_0000)), (Ok(7), 7));

    // Another page takes its place, in one step.
    d.f.write_u32(0x11_0000, 5);
    d.show(8, vram(0x11_0000));
    assert_eq!((d.bar3.read_u32(8 * PAGE), d.read(0x10_0000), d.vram.read_u32(0x10_0000)), (Ok(5), 7, Ok(7)));
}

#[test]
fn tables_of_channels_in_such_pages_are_followed() {
    let d = direct();
    d.f.write_pte(1, vram(0x5000));
    d.f.start(0);
    d.show(0, vram(SMALL_TABLE));
    d.f.link.take();

    let pte = Pte { target: vram(0x6000), read_only: false, privileged: false, kind: 0 };
    d.bar3.write_u64(2 * 8, pte.encode()).unwrap();
    d.f.flush();
    assert_eq!(d.mapped(), [(2 * PAGE, 1, 12, in_vram(0x6000))]);
}

#[test]
fn engines_reach_pages_in_bar3_as_system_memory_that_is_announced_once() {
    let d = direct();
    d.f.start(0);
    d.show(4, vram(0x10_0000));
    d.show(5, vram(0x10_1000));
    d.f.link.take();

    for page in 0..4 {
        d.f.write_pte(page, vram(0xf_f000 + page * PAGE));
    }
    d.f.flush();
    let announced =
        Request::DmaMap { gpa: Gpa(WINDOW_GPA), size: BAR3_MAPPED + (1 << 20), offset: 0, writable: true };
    assert_eq!(d.f.link.log.lock().unwrap()[0], announced);
    let parts = [
        (0, 1, 12, in_vram(0xf_f000)),
        (PAGE, 2, 12, in_bar3(4 * PAGE)),
        (3 * PAGE, 1, 12, in_vram(0x10_2000)),
    ];
    assert_eq!(d.mapped(), parts);

    d.f.write_pte(9, vram(0x10_1000));
    d.f.flush();
    assert_eq!(d.mapped(), [(9 * PAGE, 1, 12, in_bar3(5 * PAGE))]);

    // A VM that is reset leaves nothing with the aggregator.
    d.f.link.take();
    d.f.mediator.reset();
    let withdrawn = Request::DmaUnmap { gpa: Gpa(WINDOW_GPA), size: BAR3_MAPPED + (1 << 20) };
    assert_eq!(d.f.link.take(), [Request::Reset { scrub: false }, withdrawn]);
    d.f.mediator.reset();
    assert_eq!(d.f.link.take(), [Request::Reset { scrub: false }]);
}

#[test]
fn engines_follow_a_page_that_moves_and_what_they_store_meanwhile_is_not_lost() {
    let d = direct();
    d.f.write_pte(1, vram(0x10_0000));
    d.f.start(0);
    d.f.write_u32(0x10_0000, 1);
    d.f.link.take();
    // An engine stores once more to the page's old place, while its mapping changes to the new one.
    let engine = d.vram.clone();
    d.f.link.refuse_with(move |request| {
        if matches!(request, Request::UpdateSpace { .. }) {
            engine.write_u32(0x10_0004, 2).unwrap();
        }
        None
    });
    d.show(3, vram(0x10_0000));
    assert_eq!(d.mapped(), [(PAGE, 1, 12, in_bar3(3 * PAGE))]);
    assert_eq!([0, 4].map(|at| d.bar3.read_u32(3 * PAGE + at)), [Ok(1), Ok(2)]);

    let memory = d.f.mediator.bar3_memory().unwrap();
    let engine = Mapping::of_file(memory.fd.as_fd(), 0, BAR3_MAPPED, Access::ReadWrite).unwrap();
    d.f.link.refuse_with(move |request| {
        if matches!(request, Request::UpdateSpace { .. }) {
            engine.write_u32(3 * PAGE + 8, 3).unwrap();
        }
        None
    });
    d.hide(3);
    assert_eq!(d.mapped(), [(PAGE, 1, 12, in_vram(0x10_0000))]);
    assert_eq!([0, 4, 8].map(|at| d.vram.read_u32(0x10_0000 + at)), [Ok(1), Ok(2), Ok(3)]);
}

#[test]
fn large_page_with_a_page_in_bar3_is_mapped_around_it() {
    let d = direct();
    let large = 0x20_0000 - 0x2_0000;
    d.show(6, vram(large + 0x3000));
    d.f.start(0);
    let table = 0x6_0000;
    d.f.write_u64(DIRECTORY, Pde { large: Some(vram(table)), small: None }.encode());
    for page in 0..2 {
        let target = vram(large - 0x2_0000 + page * 0x2_0000);
        d.f.write_u64(table + page * 8, Pte { target, read_only: true, privileged: false, kind: 0 }.encode());
    }
    d.f.flush();
    let parts = [
        (0, 1, 17, in_vram(large - 0x2_0000)),
        (0x2_0000, 3, 12, in_vram(large)),
        (0x2_3000, 1, 12, in_bar3(6 * PAGE)),
        (0x2_4000, 28, 12, in_vram(large + 0x4000)),
    ];
    assert_eq!(d.mapped(), parts);
}

#[test]
fn userd_is_where_hardware_reads_it_with_what_the_guest_stored() {
    let d = direct();
    d.show(2, vram(USERD));
    d.bar3.write_u32(2 * PAGE + 0x40, 11).unwrap();
    d.f.start(0);
    assert_eq!((d.vram.read_u32(USERD + 0x40), d.read(USERD + 0x40)), (Ok(11), 11));
    // What hardware stores is what the guest reads by its address.
    d.vram.write_u32(USERD + 0x44, 12).unwrap();
    assert_eq!(d.read(USERD + 0x44), 12);

    // The next channel there: what the guest clears through BAR3 counts.
    d.f.mediator.bind_channel(GuestChannel(0), None);
    assert_eq!((d.bar3.read_u32(2 * PAGE + 0x44), d.read(USERD + 0x44)), (Ok(12), 12));
    d.bar3.write_u32(2 * PAGE + 0x44, 0).unwrap();
    d.f.start(0);
    assert_eq!(d.vram.read_u32(USERD + 0x44), Ok(0));

    // A page that is shown while hardware reads it stays where it is.
    d.hide(2);
    d.show(7, vram(USERD));
    d.vram.write_u32(USERD + 0x44, 13).unwrap();
    assert_eq!((d.read(USERD + 0x44), d.moved()), (13, 4));
}

#[test]
fn what_cannot_be_shown_is_counted_and_harms_nobody() {
    let d = direct();
    let fd = create_memory_file(c"ram", PAGE).unwrap();
    let backing = Some(gpuvmk_pci::DmaBacking { fd, offset: 0 });
    d.f.mediator
        .dma_map(gpuvmk_pci::DmaMapping { iova: 0, size: PAGE, writable: true, backing, owner: None })
        .unwrap();
    d.show(2, PhysicalAddress { aperture: Aperture::SystemCoherent, address: 0 });
    assert_eq!(d.not_shown(), 1);
    d.show(3, vram(VRAM));
    d.show(4, vram(VRAM - PAGE));
    assert_eq!((d.not_shown(), d.moved()), (1, 1));
    assert_eq!(d.f.mediator.status().state, super::super::State::Running);
}

#[test]
fn reset_leaves_vram_as_its_own_and_nothing_in_bar3() {
    let d = direct();
    d.show(3, vram(0x10_0000));
    d.bar3.write_u32(3 * PAGE, 7).unwrap();
    d.bar3.write_u32(BAR3_MAPPED - 4, 8).unwrap();
    d.f.mediator.reset();
    assert_eq!((d.bar3.read_u32(3 * PAGE), d.bar3.read_u32(BAR3_MAPPED - 4)), (Ok(0), Ok(0)));
    d.f.write_u32(0x10_0000, 4);
    assert_eq!((d.vram.read_u32(0x10_0000), d.bar3.read_u32(3 * PAGE)), (Ok(4), Ok(0)));
    // And it can be shown again.
    d.write_entry(3, 0);
    d.show(5, vram(0x10_0000));
    assert_eq!(d.bar3.read_u32(5 * PAGE), Ok(4));
}

#[test]
fn other_tables_or_none_bring_all_pages_home() {
    let d = direct();
    d.show(3, vram(0x10_0000));
    d.bar3.write_u32(3 * PAGE, 7).unwrap();
    d.f.mediator.show_bar3(None);
    assert_eq!((d.vram.read_u32(0x10_0000), d.read(0x10_0000)), (Ok(7), 7));
    d.look();
    assert_eq!((d.bar3.read_u32(3 * PAGE), d.moved()), (Ok(7), 3));
}

#[test]
fn vram_that_is_slow_to_read_is_refused() {
    let config = MediatorConfig { bar3: Bar3::Direct, ..MediatorConfig::default() };
    let slow = Grant { slow_vram_reads: true, ..grant() };
    let result =
        Mediator::<FermiChannels>::new(Arc::new(FakeLink::default()), slow, Fermi::default(), config);
    assert!(result.unwrap_err().to_string().contains("\"trapped\""));

    // Unless it need not be.
    let config = MediatorConfig { bar3: Bar3::WherePossible, ..MediatorConfig::default() };
    let f = fixture_of(Grant { slow_vram_reads: true, ..grant() }, config);
    assert!(f.mediator.windows().is_none());
}

#[test]
fn pramin_shows_what_it_looks_at_and_leaves_it_as_the_guest_left_it() {
    let d = direct();
    d.f.write_u32(0x18_0004, 1);
    d.f.mediator.show_pramin(Some(0x10_0000));
    assert_eq!((d.pramin.size(), d.pramin.read_u32(0x8_0004)), (1 << 20, Ok(1)));
    d.pramin.write_u32(0x8_0008, 2).unwrap();
    assert_eq!(d.read(0x18_0008), 2);

    d.f.mediator.show_pramin(Some(0x17_0000));
    assert_eq!([4, 8].map(|at| d.pramin.read_u32(0x1_0000 + at)), [Ok(1), Ok(2)]);
    // The last pages are beyond VRAM.
    d.f.mediator.show_pramin(Some(VRAM - 0x1_0000));
    d.pramin.write_u32(0x1_0000, 5).unwrap();
    d.f.mediator.show_pramin(None);
    assert_eq!((d.vram.read_u32(0x18_0008), d.read(0x18_0008)), (Ok(2), 2));
    d.f.mediator.show_pramin(Some(!0xffff));
    assert_eq!(d.f.mediator.status().state, super::super::State::Running);
}

#[test]
fn page_that_both_windows_look_at_is_in_bar3_and_then_in_pramin_again() {
    let d = direct();
    d.f.mediator.show_pramin(Some(0x10_0000));
    d.pramin.write_u32(0x2000, 1).unwrap();
    d.show(3, vram(0x10_2000));
    assert_eq!((d.bar3.read_u32(3 * PAGE), d.not_shown()), (Ok(1), 0));
    d.bar3.write_u32(3 * PAGE, 2).unwrap();
    assert_eq!(d.read(0x10_2000), 2);

    d.f.mediator.show_bar3(None);
    assert_eq!((d.pramin.read_u32(0x2000), d.read(0x10_2000)), (Ok(2), 2));
    d.pramin.write_u32(0x2000, 3).unwrap();
    assert_eq!(d.read(0x10_2000), 3);

    // PRAMIN comes to look at what BAR3 shows, and goes.
    d.f.mediator.show_pramin(None);
    d.look();
    d.f.mediator.show_pramin(Some(0x10_0000));
    d.f.mediator.show_pramin(Some(0));
    assert_eq!((d.bar3.read_u32(3 * PAGE), d.read(0x10_2000)), (Ok(3), 3));
}

/// Who has kept the files of a client that is gone sees and changes nothing of what the next one keeps there.
#[test]
fn next_client_has_other_memory_than_whoever_was_before() {
    let d = direct();
    d.f.mediator.show_pramin(Some(0x10_0000));
    d.pramin.write_u32(0x2000, 1).unwrap();
    d.f.mediator.client_gone();
    assert!(d.f.mediator.bar3_memory().is_err() && d.f.mediator.pramin_memory().is_err());
    d.f.mediator.reset();

    let shared = d.f.mediator.bar3_memory().unwrap();
    let bar3 = Mapping::of_file(shared.fd.as_fd(), 0, BAR3_MAPPED, Access::ReadWrite).unwrap();
    let shared = d.f.mediator.pramin_memory().unwrap();
    let pramin = Mapping::of_file(shared.fd.as_fd(), shared.offset, shared.size, Access::ReadWrite).unwrap();
    d.f.mediator.show_pramin(Some(0x10_0000));
    d.show(3, vram(0x20_0000));
    pramin.write_u32(0x2004, 5).unwrap();
    bar3.write_u32(3 * PAGE, 6).unwrap();
    assert_eq!((d.read(0x10_2004), d.read(0x20_0000)), (5, 6));

    assert_eq!((d.pramin.read_u32(0x2004), d.bar3.read_u32(3 * PAGE)), (Ok(0), Ok(0)));
    d.pramin.fill(0, 1 << 20, 0x22).unwrap();
    d.bar3.fill(0, BAR3_MAPPED, 0x22).unwrap();
    assert_eq!((d.read(0x10_2004), d.read(0x20_0000)), (5, 6));
    assert_eq!(d.f.mediator.status().state, super::super::State::Running);
}
