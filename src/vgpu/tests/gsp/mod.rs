//! The mediator of a GH100, as its virtual GSP uses it.

mod hostile;

use super::*;
use crate::{FailSafe, GspChannels, State};
use gpuvmk_aggregator::limit::Limit;
use gpuvmk_aggregator::protocol::{GuestMapping, GuestRange, GuestTarget};
use gpuvmk_aggregator::report::Usage;
use gpuvmk_backend::{ChannelRefusal, GspBackend, GspChannel, ObjectUsage};
use gpuvmk_chip::addr::{GpuVa, GuestChannel, GuestVram};
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};
use gpuvmk_chip::gmmu::{Gmmu, Level, Pde as TablePde, Pte as PagePte};

const HOPPER_ENGINES: EngineSet =
    EngineSet::GRAPHICS.union(EngineSet::COPY0).union(EngineSet::COPY1).union(EngineSet::COPY2);

/// Page directories of two address spaces, and the tables that both of them share.
const ROOTS: [u64; 2] = [0x1000, 0x2000];
const PD3: u64 = 0x3000;
const PD2: u64 = 0x4000;
const PD1: u64 = 0x5000;
const PD0: u64 = 0x6000;
const SMALL: u64 = 0x8000;
const BIG: u64 = 0x9000;

struct Gsp {
    link: Arc<FakeLink>,
    face: Arc<FakeFace>,
    mediator: Mediator<GspChannels>,
    format: Gmmu,
}

fn gsp() -> Gsp {
    gsp_with(Gmmu::V3, MediatorConfig::default(), &[12, 16, 21, 29], 57)
}

fn gsp_with(format: Gmmu, config: MediatorConfig, shifts: &[u8], va_bits: u8) -> Gsp {
    let link = Arc::new(FakeLink::default());
    let face = Arc::new(FakeFace::default());
    let grant = Grant { engines: HOPPER_ENGINES, page_shifts: shifts.to_vec(), va_bits, ..grant() };
    let mediator = Mediator::new(link.clone(), grant, format, config).unwrap();
    mediator.connect_events(face.clone());
    Gsp { link, face, mediator, format }
}

fn channel(space: usize) -> GspChannel {
    GspChannel {
        context_of: None,
        page_directory: vram(ROOTS[space]),
        gpfifo: GpuVa(0x1_1000),
        gpfifo_entries_log2: 10,
        userd: USERD,
        engines: EngineSet::COPY1,
    }
}

impl Gsp {
    fn write(&self, address: u64, value: u64) {
        self.mediator.write_memory(vram(address), &value.to_le_bytes()).unwrap();
    }

    /// An entry that names a table.
    fn name(&self, table: u64) -> u64 {
        self.format.encode_pde(TablePde::Table(vram(table)))
    }

    /// Directories for the first 2 MiB, with a small and a big table.
    fn write_directories(&self) {
        let name = |table| self.name(table);
        for root in ROOTS {
            self.write(root, name(if self.format.root() == Level::Pd4 { PD3 } else { PD2 }));
        }
        self.write(PD3, name(PD2));
        self.write(PD2, name(PD1));
        self.write(PD1, name(PD0));
        let dual = self.format.encode_tables(TablePde::Table(vram(BIG)), TablePde::Table(vram(SMALL)));
        self.write(PD0, dual as u64);
        self.write(PD0 + 8, (dual >> 64) as u64);
    }

    fn write_page(&self, entry: u64, target: u64) {
        let pte = PagePte { target: vram(target), read_only: false, privileged: false, kind: 6 };
        self.write(entry, self.format.encode_page(pte));
    }

    fn flush(&self, space: usize) {
        self.mediator.flush_tlb(FlushScope { page_directory: vram(ROOTS[space]), hub_only: false });
    }
}

fn create(slot: u16, space: u16) -> Request {
    Request::CreateChannel {
        context_of: None,
        channel: GuestChannel(slot),
        space: SpaceId(space),
        gpfifo: GpuVa(0x1_1000),
        gpfifo_entries_log2: 10,
        userd: GuestVram(USERD),
        engines: EngineSet::COPY1,
    }
}

fn enable(slot: u16, enabled: bool) -> Request {
    Request::EnableChannel { channel: GuestChannel(slot), enabled }
}

fn list(slots: &[u16]) -> Request {
    Request::SetRunlist(slots.iter().copied().map(GuestChannel).collect())
}

fn page(va: u64, pages: u32, page_shift: u8, target: u64) -> GuestMapping {
    let target = GuestTarget::Vram(GuestVram(target));
    GuestMapping { va: GpuVa(va), pages, page_shift, target, read_only: false, kind: 6 }
}

fn update(space: u16, unmap: Vec<GuestRange>, map: Vec<GuestMapping>) -> Request {
    Request::UpdateSpace { space: SpaceId(space), unmap, map }
}

#[test]
fn life_of_a_channel_becomes_these_requests() {
    Gmmu::ALL.into_iter().for_each(live);
}

/// A channel's life with page tables of a format.
fn live(format: Gmmu) {
    let f = gsp_with(format, MediatorConfig::default(), &[12, 16, 21, 29], 57);
    f.write_directories();
    f.write_page(SMALL + 8, 0x7000);
    f.write_page(BIG + 16, 0x5_0000);

    f.mediator.create_channel(GuestChannel(3), channel(0)).unwrap();
    let pages = vec![page(0x1000, 1, 12, 0x7000), page(0x2_0000, 1, 16, 0x5_0000)];
    assert_eq!(f.link.take(), [Request::CreateSpace(SpaceId(0)), update(0, vec![], pages), create(3, 0)]);

    f.mediator.create_object(GuestChannel(3), 0xc8b5, Engine::COPY1).unwrap();
    f.mediator.schedule_channel(GuestChannel(3), true).unwrap();
    let object = Request::CreateObject { channel: GuestChannel(3), class: 0xc8b5, engine: Engine::COPY1 };
    assert_eq!(f.link.take(), [object, enable(3, true), list(&[3])]);

    f.mediator.doorbell(GuestChannel(3), 5);
    f.mediator.doorbell(GuestChannel(2), 5);
    assert_eq!(*f.link.doorbells.lock().unwrap(), [Doorbell { channel: GuestChannel(3), gp_put: 5 }]);
    assert_eq!(f.mediator.status().counts.doorbells_dropped, 1);

    f.mediator.schedule_channel(GuestChannel(3), false).unwrap();
    f.mediator.destroy_channel(GuestChannel(3));
    f.mediator.destroy_channel(GuestChannel(3));
    let gone = [Request::DestroyChannel(GuestChannel(3)), Request::DestroySpace(SpaceId(0))];
    assert_eq!(f.link.take(), [[enable(3, false), list(&[])], gone].concat());
    let status = f.mediator.status();
    assert_eq!((status.channels_bound, status.spaces, status.tables), (0, 0, 0));
}

#[test]
fn runlist_is_that_of_all_scheduled_slots() {
    let f = gsp();
    for slot in [5, 1, 2] {
        f.mediator.create_channel(GuestChannel(slot), channel(0)).unwrap();
        f.mediator.schedule_channel(GuestChannel(slot), true).unwrap();
    }
    f.link.take();

    f.mediator.schedule_channel(GuestChannel(5), true).unwrap();
    f.mediator.destroy_channel(GuestChannel(1));
    f.mediator.schedule_channel(GuestChannel(2), false).unwrap();

    let expected = [enable(5, true), Request::DestroyChannel(GuestChannel(1)), enable(2, false), list(&[5])];
    assert_eq!(f.link.take(), expected);
}

#[test]
fn flush_synchronises_its_page_directory_and_nothing_else() {
    let f = gsp();
    f.write_directories();
    f.mediator.create_channel(GuestChannel(0), channel(0)).unwrap();
    f.mediator.create_channel(GuestChannel(1), channel(1)).unwrap();
    f.write_page(SMALL, 0x7000);
    f.link.take();

    f.flush(1);
    assert_eq!(f.link.take(), [update(1, vec![], vec![page(0, 1, 12, 0x7000)])]);
    f.flush(0);
    assert_eq!(f.link.take(), [update(0, vec![], vec![page(0, 1, 12, 0x7000)])]);

    f.mediator.destroy_channel(GuestChannel(1));
    f.link.take();
    f.flush(1);
    assert_eq!(f.link.take(), []);
    assert_eq!(f.mediator.status().counts.flushes_unused, 1);
}

#[test]
fn work_that_was_rung_for_before_the_channel_ran_is_rung_for_again() {
    let f = gsp();
    f.mediator.create_channel(GuestChannel(0), channel(0)).unwrap();
    f.mediator.write_memory(vram(USERD + 0x8c), &4u32.to_le_bytes()).unwrap();

    f.mediator.schedule_channel(GuestChannel(0), true).unwrap();

    assert_eq!(*f.link.doorbells.lock().unwrap(), [Doorbell { channel: GuestChannel(0), gp_put: 4 }]);
}

#[test]
fn pages_that_the_physical_gpu_lacks_are_split_and_addresses_beyond_its_own_left_out() {
    let f = gsp_with(Gmmu::V3, MediatorConfig::default(), &[12, 21], 41);
    f.write_directories();
    f.write_page(BIG, 0x5_0000);
    // The same tables once more, 2^41 bytes further on.
    f.write(PD2 + 8 * 8, f.name(PD1));

    f.mediator.create_channel(GuestChannel(0), channel(0)).unwrap();

    assert_eq!(f.link.take()[1], update(0, vec![], vec![page(0, 16, 12, 0x5_0000)]));
    assert_eq!(f.mediator.status().counts.runs_unreachable, 1);
    f.write(BIG, 0);
    f.flush(0);
    let range = GuestRange { va: GpuVa(0), pages: 16, page_shift: 12 };
    assert_eq!(f.link.take(), [update(0, vec![range], vec![])]);
}

#[test]
fn unsound_channels_are_refused_without_asking() {
    let f = gsp();
    let good = channel(0);
    let invalid = [
        GspChannel { gpfifo: GpuVa(0x1_1004), ..good },
        GspChannel { gpfifo: GpuVa(1 << 57), ..good },
        GspChannel { gpfifo: GpuVa((1 << 57) - 8), ..good },
        GspChannel { gpfifo: GpuVa(u64::MAX - 7), ..good },
        GspChannel { gpfifo_entries_log2: 20, ..good },
        GspChannel { gpfifo_entries_log2: 255, ..good },
        GspChannel { userd: VRAM, ..good },
        GspChannel { userd: u64::MAX - 511, ..good },
        GspChannel { userd: 0x100, ..good },
    ];
    for wrong in invalid {
        assert_eq!(
            f.mediator.create_channel(GuestChannel(0), wrong),
            Err(ChannelRefusal::Invalid),
            "{wrong:?}"
        );
    }
    for engines in [EngineSet::empty(), EngineSet::COPY4] {
        let wrong = GspChannel { engines, ..good };
        assert_eq!(f.mediator.create_channel(GuestChannel(0), wrong), Err(ChannelRefusal::Unsupported));
    }
    f.mediator.create_channel(GuestChannel(0), good).unwrap();
    f.link.take();
    assert_eq!(f.mediator.create_channel(GuestChannel(0), good), Err(ChannelRefusal::Invalid));
    assert_eq!(f.mediator.create_channel(GuestChannel(CHANNELS), good), Err(ChannelRefusal::Invalid));
    assert_eq!(
        f.mediator.create_object(GuestChannel(1), 0xc8b5, Engine::COPY1),
        Err(ChannelRefusal::Invalid)
    );
    assert_eq!(
        f.mediator.create_object(GuestChannel(0), 0xcbc0, Engine::Graphics),
        Err(ChannelRefusal::Unsupported)
    );
    assert_eq!(f.mediator.schedule_channel(GuestChannel(u16::MAX), true), Err(ChannelRefusal::Invalid));
    f.mediator.destroy_channel(GuestChannel(u16::MAX));
    assert_eq!(f.link.take(), []);
    assert_eq!(f.mediator.status().state, State::Running);
}

#[test]
fn what_the_aggregator_refuses_the_driver_is_told_and_nothing_stays() {
    let cases = [
        (RefusalKind::Exhausted, ChannelRefusal::Exhausted),
        (RefusalKind::Quota, ChannelRefusal::Exhausted),
        (RefusalKind::Hardware, ChannelRefusal::Exhausted),
        (RefusalKind::OutsidePartition, ChannelRefusal::Invalid),
        (RefusalKind::BadId, ChannelRefusal::Invalid),
        (RefusalKind::Class, ChannelRefusal::Unsupported),
    ];
    let f = gsp();
    for (kind, expected) in cases {
        f.link.refuse_with(move |request| {
            matches!(request, Request::CreateChannel { .. }).then(|| refused(kind))
        });
        assert_eq!(f.mediator.create_channel(GuestChannel(0), channel(0)), Err(expected), "{kind:?}");
        assert_eq!(f.mediator.status().spaces, 0);
        f.link.refuse_with(move |request| {
            let asked = matches!(request, Request::CreateObject { .. } | Request::EnableChannel { .. });
            asked.then(|| refused(kind))
        });
        f.mediator.create_channel(GuestChannel(0), channel(0)).unwrap();
        assert_eq!(f.mediator.create_object(GuestChannel(0), 0xc8b5, Engine::COPY1), Err(expected));
        assert_eq!(f.mediator.schedule_channel(GuestChannel(0), true), Err(expected));
        f.mediator.destroy_channel(GuestChannel(0));
    }
    let status = f.mediator.status();
    assert_eq!((status.state, status.channels_placed, status.spaces), (State::Running, 0, 0));
    assert_eq!(status.counts.refused_to_guest, 18);
}

#[test]
fn refusal_for_want_of_spaces_costs_the_channel_only() {
    let f = gsp();
    f.link.refuse_with(|request| {
        matches!(request, Request::CreateSpace(_)).then(|| refused(RefusalKind::Exhausted))
    });
    assert_eq!(f.mediator.create_channel(GuestChannel(0), channel(0)), Err(ChannelRefusal::Exhausted));
    f.link.refuse_nothing();
    for n in 0..SPACES {
        let page_directory = vram(0x10_0000 + u64::from(n) * 0x1000);
        f.mediator.create_channel(GuestChannel(n), GspChannel { page_directory, ..channel(0) }).unwrap();
    }
    assert_eq!(f.mediator.create_channel(GuestChannel(SPACES), channel(0)), Err(ChannelRefusal::Exhausted));
    assert_eq!(f.mediator.status().state, State::Running);
}

#[test]
fn protocol_violation_and_loss_end_the_vgpu_until_a_reset() {
    let f = gsp();
    f.mediator.create_channel(GuestChannel(0), channel(0)).unwrap();
    f.link.refuse_with(|request| {
        matches!(request, Request::SetRunlist(_)).then(|| refused(RefusalKind::Protocol))
    });
    assert_eq!(f.mediator.schedule_channel(GuestChannel(0), true), Err(ChannelRefusal::Lost));
    assert!(matches!(f.mediator.status().state, State::FailSafe(FailSafe::ProtocolViolation(_))));
    assert!(matches!(f.face.take().as_slice(), [Told::Lost(_)]));
    f.link.refuse_nothing();
    assert_eq!(f.mediator.create_channel(GuestChannel(1), channel(0)), Err(ChannelRefusal::Lost));

    f.mediator.reset();
    f.mediator.create_channel(GuestChannel(1), channel(0)).unwrap();
    f.link.refuse_with(|_| Some(LinkError::Lost("gone".into())));
    assert_eq!(f.mediator.create_object(GuestChannel(1), 0xc8b5, Engine::COPY1), Err(ChannelRefusal::Lost));
    assert!(matches!(f.mediator.status().state, State::FailSafe(FailSafe::AggregatorLost(_))));
}

#[test]
fn error_of_a_channel_reaches_the_face_while_the_channel_is_there() {
    let f = gsp();
    f.mediator.create_channel(GuestChannel(0), channel(0)).unwrap();
    let stop = ChannelStop::new(GuestChannel(0), StopCause::Manager(31));
    f.link.handler().event(Event::Stopped(stop));
    assert_eq!(f.face.take(), [Told::Stopped(stop)]);

    f.mediator.destroy_channel(GuestChannel(0));
    f.link.handler().event(Event::Stopped(stop));
    assert_eq!(f.face.take(), []);
    f.mediator.create_channel(GuestChannel(0), channel(0)).unwrap();
    f.mediator.schedule_channel(GuestChannel(0), true).unwrap();
    assert_eq!(f.mediator.status().counts.events_stale, 1);
}

#[test]
fn operators_learn_when_the_driver_is_refused_objects() {
    let f = gsp();
    let told = || f.link.report.lock().unwrap().limits.clone();
    f.mediator.note_objects(ObjectUsage { limit: 100, used: 99, refused: 0 });
    assert!(told().is_empty(), "nothing happened that is worth a report");

    f.mediator.note_objects(ObjectUsage { limit: 100, used: 100, refused: 2 });
    f.mediator.note_objects(ObjectUsage { limit: 100, used: 100, refused: 1 });

    assert!(told().contains(&(Limit::Objects, Usage { limit: 100, used: 100, hits: 3 })));
    // The count goes on over resets, as those of the other limits do.
    f.mediator.note_objects(ObjectUsage { limit: 100, used: 0, refused: 0 });
    f.mediator.reset();
    assert!(told().contains(&(Limit::Objects, Usage { limit: 100, used: 0, hits: 3 })));
}
