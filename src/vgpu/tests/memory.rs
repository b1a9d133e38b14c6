//! Page tables, guest memory, and the window.

use super::*;
use gpuvmk_aggregator::protocol::{GuestMapping, GuestRange, GuestTarget};
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use std::os::fd::AsFd;

use crate::Quotas;
use gpuvmk_pci::mapping::{Access, Mapping};
use gpuvmk_pci::{DmaBacking, DmaError, DmaMapping};

fn mapping(page: u64, target: GuestTarget) -> GuestMapping {
    GuestMapping { va: GpuVa(page << 12), pages: 1, page_shift: 12, target, read_only: false, kind: 0 }
}

fn range(page: u64) -> GuestRange {
    GuestRange { va: GpuVa(page << 12), pages: 1, page_shift: 12 }
}

fn update(unmap: Vec<GuestRange>, map: Vec<GuestMapping>) -> Request {
    Request::UpdateSpace { space: SpaceId(0), unmap, map }
}

fn ram(iova: u64, size: u64) -> DmaMapping {
    let fd = create_memory_file(c"ram", size).unwrap();
    DmaMapping { iova, size, writable: true, backing: Some(DmaBacking { fd, offset: 0 }), owner: None }
}

fn system(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::SystemCoherent, address }
}

#[test]
fn flush_sends_what_changed_and_nothing_else() {
    let f = fixture();
    f.write_pte(1, vram(0x5000));
    f.start(0);

    f.flush();
    assert_eq!(f.link.take(), []);

    f.write_pte(2, vram(0x6000));
    f.write_u64(SMALL_TABLE + 8, 0);
    f.flush();
    let map = mapping(2, GuestTarget::Vram(GuestVram(0x6000)));
    assert_eq!(f.link.take(), [update(vec![range(1)], vec![map])]);
}

#[test]
fn flush_of_a_directory_that_no_channel_uses_is_free() {
    let f = fixture();
    f.write_pte(1, vram(0x5000));
    f.link.take();
    f.flush();
    assert_eq!(f.link.take(), []);
    let counts = f.mediator.status().counts;
    assert_eq!((counts.flushes, counts.flushes_unused, counts.table_pages), (1, 1, 0));
}

#[test]
fn target_outside_own_memory_is_never_asked_for() {
    let f = fixture();
    f.write_pte(1, vram(VRAM));
    f.write_pte(2, system(0x10_0000));
    f.start(0);
    f.flush();
    assert_eq!(f.link.take(), []);
    assert_eq!(f.mediator.status().counts.pages_withheld, 4);
}

#[test]
fn guest_memory_is_announced_and_can_be_mapped_until_it_goes() {
    let f = fixture();
    f.start(0);
    f.mediator.dma_map(ram(0x10_0000, 0x4000)).unwrap();
    f.write_pte(7, system(0x10_1000));
    f.flush();
    let target = GuestTarget::System { address: Gpa(0x10_1000), coherent: true };
    let announced = Request::DmaMap { gpa: Gpa(0x10_0000), size: 0x4000, offset: 0, writable: true };
    assert_eq!(f.link.take(), [announced.clone(), update(vec![], vec![mapping(7, target)])]);

    f.mediator.dma_unmap(0x10_0000, 0x4000).unwrap();
    let gone = Request::DmaUnmap { gpa: Gpa(0x10_0000), size: 0x4000 };
    assert_eq!(f.link.take(), [update(vec![range(7)], vec![]), gone]);
    assert!(f.mediator.read_memory(system(0x10_0000), &mut [0; 4]).is_err());

    // The tables still say so: with the memory back, the next flush maps it again.
    f.flush();
    assert_eq!(f.link.take(), []);
    f.mediator.dma_map(ram(0x10_0000, 0x4000)).unwrap();
    f.flush();
    assert_eq!(f.link.take(), [announced, update(vec![], vec![mapping(7, target)])]);
}

#[test]
fn tables_in_system_memory_are_followed() {
    let f = fixture();
    f.mediator.dma_map(ram(0x20_0000, 0x10_0000)).unwrap();
    let pde = Pde { large: None, small: Some(system(0x24_0000)) };
    let pte = Pte { target: vram(0x9000), read_only: true, privileged: false, kind: 3 };
    f.mediator.write_memory(system(0x20_0000), &pde.encode().to_le_bytes()).unwrap();
    f.mediator.write_memory(system(0x24_0008), &pte.encode().to_le_bytes()).unwrap();
    f.write_instance(0);
    f.write_u64(INSTANCE + ramin::PAGE_DIRECTORY_LO, 0x20_0000 | 2);
    f.bind(0);
    f.link.take();

    f.mediator.enable_channel(GuestChannel(0), true);

    let target = GuestTarget::Vram(GuestVram(0x9000));
    let map = GuestMapping { read_only: true, kind: 3, ..mapping(1, target) };
    assert_eq!(f.link.take()[1], update(vec![], vec![map]));
}

#[test]
fn range_without_memory_is_not_announced_and_not_reachable() {
    let f = fixture();
    f.link.take();
    let rom = DmaMapping { iova: 0xc0000, size: 0x2000, writable: false, backing: None, owner: None };
    f.mediator.dma_map(rom).unwrap();
    f.mediator.dma_unmap(0xc0000, 0x2000).unwrap();
    assert_eq!(f.link.take(), []);
}

#[test]
fn refused_announcement_leaves_nothing_behind() {
    let f = fixture();
    f.link.refuse_with(|request| {
        matches!(request, Request::DmaMap { .. }).then(|| refused(RefusalKind::Quota))
    });
    let result = f.mediator.dma_map(ram(0x1000, 0x1000));
    assert!(matches!(result, Err(DmaError::Backing { .. })));

    f.link.refuse_nothing();
    f.mediator.dma_map(ram(0x1000, 0x1000)).unwrap();
}

#[test]
fn wrong_ranges_are_refused_and_change_nothing() {
    let f = fixture();
    f.mediator.dma_map(ram(0x1000, 0x2000)).unwrap();
    f.link.take();
    assert!(matches!(f.mediator.dma_map(ram(0x2000, 0x1000)), Err(DmaError::Overlap { .. })));
    assert!(matches!(f.mediator.dma_unmap(0x1800, 0x1000), Err(DmaError::Invalid { .. })));
    f.mediator.dma_unmap(0x8000, 0x1000).unwrap();
    assert_eq!(f.link.take(), []);
    f.mediator.dma_unmap_all();
    assert_eq!(f.link.take(), [Request::DmaUnmap { gpa: Gpa(0x1000), size: 0x2000 }]);
}

#[test]
fn pages_of_a_machine_with_an_iommu_come_and_go_one_by_one() {
    let quotas = Quotas { memory_ranges: 2, ..Quotas::default() };
    let f = fixture_with(MediatorConfig { quotas, ..MediatorConfig::default() });
    assert_eq!(f.mediator.most_dma_ranges(), 2);
    let file = create_memory_file(c"ram", 16 << 12).unwrap();
    let page = |number: u64, offset: u64| {
        let backing = Some(DmaBacking { fd: file.try_clone().unwrap(), offset });
        DmaMapping { iova: 0xf000_0000 + (number << 12), size: 0x1000, writable: true, backing, owner: None }
    };
    for number in [5, 3, 4, 1, 2] {
        f.mediator.dma_map(page(number, number << 12)).unwrap();
    }
    f.mediator.dma_map(page(9, 0)).unwrap();
    assert!(f.mediator.dma_map(page(11, 0)).is_err());
    f.link.take();

    f.mediator.dma_unmap(0xf000_3000, 0x1000).unwrap();
    f.mediator.dma_unmap(0xf000_0000, 0x10_0000).unwrap();

    let gone = |gpa, size| Request::DmaUnmap { gpa: Gpa(gpa), size };
    assert_eq!(
        f.link.take(),
        // What lies between is not there.
        [gone(0xf000_3000, 0x1000), gone(0xf000_1000, 0x9000)]
    );
}

#[test]
fn memory_is_there_before_the_gpu_is_given_it() {
    let f = fixture();
    let fd = create_memory_file(c"ram", 8 << 20).unwrap();
    let file = fd.try_clone().unwrap();
    let backing = Some(DmaBacking { fd, offset: 0 });
    f.mediator.dma_map(DmaMapping { iova: 0, size: 8 << 20, writable: true, backing, owner: None }).unwrap();
    f.start(0);
    let holes = || gpuvmk_pci::mapping::unbacked(file.as_fd(), 0, 8 << 20, u64::MAX).unwrap();
    assert_eq!(holes(), 8 << 20, "a sparse file stays sparse");

    f.write_pte(7, system(0x40_1000));
    f.flush();

    assert_eq!(holes(), 6 << 20, "but for the block that engines reach");
}

#[test]
fn change_of_the_large_page_size_shadows_everything_anew() {
    let f = fixture();
    f.write_pte(1, vram(0x5000));
    f.start(0);

    f.mediator.set_fifo_state(FifoState { large_pages_64k: true, ..FIFO_ON });

    let map = mapping(1, GuestTarget::Vram(GuestVram(0x5000)));
    assert_eq!(f.link.take(), [update(vec![range(1)], vec![]), update(vec![], vec![map])]);
}

#[test]
fn pages_of_64_kib_are_mapped_as_small_pages_after_all_that_is_unmapped() {
    let f = fixture();
    f.mediator.set_fifo_state(FifoState { large_pages_64k: true, ..FIFO_ON });
    f.write_pte(0x10, vram(0x5000));
    f.start(0);
    // The same address by a large page instead.
    let large_table = SMALL_TABLE + 0x4_0000;
    f.write_u64(SMALL_TABLE + 0x10 * 8, 0);
    let pde = Pde { large: Some(vram(large_table)), small: Some(vram(SMALL_TABLE)) };
    f.write_u64(DIRECTORY, pde.encode());
    for entry in [1, 2] {
        let target = vram(0x10_0000 + entry * 0x1_0000);
        let pte = Pte { target, read_only: false, privileged: false, kind: 0 };
        f.write_u64(large_table + entry * 8, pte.encode());
    }

    f.flush();

    let map = GuestMapping { pages: 32, ..mapping(0x10, GuestTarget::Vram(GuestVram(0x11_0000))) };
    // One request unmaps before it maps.
    assert_eq!(f.link.take(), [update(vec![range(0x10)], vec![map])]);

    f.write_u64(DIRECTORY, 0);
    f.flush();
    assert_eq!(f.link.take(), [update(vec![GuestRange { pages: 32, ..range(0x10) }], vec![])]);
}

#[test]
fn what_is_mapped_comes_after_all_that_is_unmapped_however_many_requests_it_takes() {
    let f = fixture();
    // Every other page, so that each is a run: more runs than two requests hold.
    let count = MAX_UPDATE_RUNS as u64 + 500;
    for page in 0..count {
        f.write_pte(page * 2, vram(0x1000));
    }
    f.start(0);
    for page in 0..count {
        f.write_u64(SMALL_TABLE + page * 16, 0);
        f.write_pte(page * 2 + 1, vram(0x2000));
    }

    f.flush();

    let sizes: Vec<_> = f
        .link
        .take()
        .iter()
        .map(|request| match request {
            Request::UpdateSpace { unmap, map, .. } => (unmap.len(), map.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sizes, [(MAX_UPDATE_RUNS, 0), (500, MAX_UPDATE_RUNS - 500), (0, 1000)]);
}

#[test]
fn window_reads_as_one_memory_over_its_pieces() {
    let f = fixture();
    let data: Vec<u8> = (0..16).collect();
    f.mediator.write_memory(vram(VRAM / 2 - 8), &data).unwrap();
    let mut back = [0; 16];
    f.mediator.read_memory(vram(VRAM / 2 - 8), &mut back).unwrap();
    assert_eq!(back[..], data[..]);
    assert!(f.mediator.write_memory(vram(VRAM - 8), &data).is_err());
    assert!(f.mediator.read_memory(vram(u64::MAX), &mut back).is_err());
}

#[test]
fn shared_vram_names_the_pieces_behind_the_range() {
    let f = fixture();
    let shared = f.mediator.share_vram(VRAM / 2 - 0x2000, 0x5000).unwrap();
    let places: Vec<_> = shared.iter().map(|piece| (piece.offset, piece.size)).collect();
    assert_eq!(places, [(VRAM - 0x2000, 0x2000), (VRAM / 2, 0x3000)]);
    for (offset, size) in [(VRAM, 0x1000), (0, VRAM + 0x1000), (0, 0), (1, 0x1000), (u64::MAX, 2)] {
        assert!(f.mediator.share_vram(offset, size).is_err());
    }
}

#[test]
fn grant_whose_window_is_not_its_vram_is_refused() {
    let short = Grant { vram: VRAM * 2, ..grant() };
    let link = Arc::new(FakeLink::default());
    let result = Mediator::<FermiChannels>::new(link, short, Fermi::default(), MediatorConfig::default());
    assert_eq!(
        result.unwrap_err().to_string(),
        "The aggregator granted 0x800000 bytes of VRAM but shows 0x400000"
    );
}

/// A vGPU whose VRAM is slow to read, and its memory as an engine sees it.
fn slow_fixture(config: MediatorConfig) -> (Fixture, Mapping) {
    let fd = create_memory_file(c"slow", VRAM).unwrap();
    let engine = Mapping::of_file(fd.as_fd(), 0, VRAM, Access::ReadWrite).unwrap();
    let window = vec![SharedMemory { fd, offset: 0, size: VRAM }];
    (fixture_of(Grant { slow_vram_reads: true, window, ..grant() }, config), engine)
}

fn word(f: &Fixture, address: u64, tables: bool) -> u64 {
    let mut raw = [0; 8];
    let read = if tables {
        f.mediator.read_tables(vram(address), &mut raw)
    } else {
        f.mediator.read_memory(vram(address), &mut raw)
    };
    read.unwrap();
    u64::from_le_bytes(raw)
}

#[test]
fn tables_in_slow_memory_are_read_once_and_data_every_time() {
    let (f, engine) = slow_fixture(MediatorConfig::default());
    engine.write_u64(0x5000, 1).unwrap();
    assert_eq!((word(&f, 0x5000, true), word(&f, 0x5000, false)), (1, 1));

    engine.write_u64(0x5000, 2).unwrap();
    assert_eq!((word(&f, 0x5000, true), word(&f, 0x5000, false)), (1, 2));

    f.write_u64(0x5000, 3);
    assert_eq!((word(&f, 0x5000, true), engine.read_u64(0x5000).unwrap()), (3, 3));
    assert!(f.mediator.read_tables(vram(VRAM - 4), &mut [0; 8]).is_err());
    assert!(f.mediator.write_memory(vram(u64::MAX - 3), &[0; 8]).is_err());
}

#[test]
fn walks_of_slow_memory_see_every_write_of_the_cpu_and_stay_off_the_device() {
    let (f, engine) = slow_fixture(MediatorConfig::default());
    f.write_pte(1, vram(0x5000));
    f.start(0);
    // Were the walker to look at the device, it would find nothing mapped.
    engine.fill(SMALL_TABLE, 0x4_0000, 0).unwrap();

    f.flush();
    assert_eq!(f.link.take(), []);

    f.write_pte(2, vram(0x6000));
    f.flush();
    let map = mapping(2, GuestTarget::Vram(GuestVram(0x6000)));
    assert_eq!(f.link.take(), [update(vec![], vec![map])]);
}

#[test]
fn copies_of_slow_memory_end_with_a_reset_and_forbid_sharing() {
    let (f, engine) = slow_fixture(MediatorConfig { table_cache: 0, ..MediatorConfig::default() });
    assert_eq!(word(&f, 0x5000, true), 0);
    engine.write_u64(0x5000, 7).unwrap();

    f.mediator.reset();

    assert_eq!(word(&f, 0x5000, true), 7);
    let refusal = f.mediator.share_vram(0, 0x1000).unwrap_err();
    assert_eq!(refusal.kind(), std::io::ErrorKind::Unsupported);
}
