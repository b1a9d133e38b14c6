//! Random requests of a random driver over random page tables: nothing panics, and the aggregator's contract
//! holds (the fake link checks it). Refusals come at random too.

use proptest::prelude::*;

use super::*;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};
use gpuvmk_pci::{DmaBacking, DmaMapping};
use gpuvmk_shadow_pagetable::Limits;

#[derive(Clone, Copy, Debug)]
enum Step {
    Create(u16, u64, u64, u8, u64),
    Object(u16, u32, u8),
    Schedule(u16, bool),
    Destroy(u16),
    Flush(u64),
    Doorbell(u16, u32),
    Write(u64, u64),
    Map(u64),
    Unmap(u64),
    Error(u16),
    Reset,
    RefuseEvery(usize),
}

fn step(format: Gmmu) -> impl Strategy<Value = Step> {
    let slot = || 0..CHANNELS + 2;
    let page = || prop_oneof![9 => (0u64..64).prop_map(|page| page << 12), 1 => any::<u64>()];
    let entry = prop_oneof![
        (0u64..VRAM >> 12).prop_map(move |page| format.encode_pde(TablePde::Table(vram(page << 12)))),
        (0u64..64, any::<bool>()).prop_map(move |(page, read_only)| {
            let target = vram(page << 12);
            format.encode_page(PagePte { target, read_only, privileged: false, kind: 0 })
        }),
        any::<u64>(),
    ];
    prop_oneof![
        4 => (slot(), page(), page(), 0u8..24, prop_oneof![3 => 0u64..64, 1 => any::<u64>()])
            .prop_map(|(id, root, userd, log2, engines)| Step::Create(id, root, userd, log2, engines)),
        1 => (slot(), any::<u32>(), 0u8..4).prop_map(|(id, class, engine)| Step::Object(id, class, engine)),
        2 => (slot(), any::<bool>()).prop_map(|(id, on)| Step::Schedule(id, on)),
        1 => slot().prop_map(Step::Destroy),
        3 => page().prop_map(Step::Flush),
        1 => (slot(), any::<u32>()).prop_map(|(id, put)| Step::Doorbell(id, put)),
        8 => (0u64..64, 0u64..4, entry).prop_map(|(page, at, value)| Step::Write((page << 12) + at * 8, value)),
        1 => (0u64..8).prop_map(Step::Map),
        1 => (0u64..8).prop_map(Step::Unmap),
        1 => slot().prop_map(Step::Error),
        1 => Just(Step::Reset),
        1 => (2usize..40).prop_map(Step::RefuseEvery),
    ]
}

fn perform(f: &Gsp, step: Step) {
    let mediator = &f.mediator;
    match step {
        Step::Create(slot, root, userd, log2, engines) => {
            let channel = GspChannel {
                context_of: None,
                page_directory: vram(root),
                gpfifo: GpuVa(userd),
                gpfifo_entries_log2: log2,
                userd,
                engines: EngineSet::from_bits_truncate(engines),
            };
            let _ = mediator.create_channel(GuestChannel(slot), channel);
        }
        Step::Object(slot, class, engine) => {
            let _ = mediator.create_object(GuestChannel(slot), class, Engine::ALL[usize::from(engine)]);
        }
        Step::Schedule(slot, scheduled) => {
            let _ = mediator.schedule_channel(GuestChannel(slot), scheduled);
        }
        Step::Destroy(slot) => mediator.destroy_channel(GuestChannel(slot)),
        Step::Flush(root) => mediator.flush_tlb(FlushScope { page_directory: vram(root), hub_only: true }),
        Step::Doorbell(slot, put) => mediator.doorbell(GuestChannel(slot), put),
        Step::Write(at, value) => f.write(at, value),
        Step::Map(n) => {
            let fd = create_memory_file(c"ram", 0x2000).unwrap();
            let backing = Some(DmaBacking { fd, offset: 0 });
            let _ = mediator.dma_map(DmaMapping {
                iova: n << 12,
                size: 0x2000,
                writable: true,
                backing,
                owner: None,
            });
        }
        Step::Unmap(n) => {
            let _ = mediator.dma_unmap(n << 12, 0x2000);
        }
        Step::Error(channel) => {
            f.link
                .handler()
                .event(Event::Stopped(ChannelStop::new(GuestChannel(channel), StopCause::Manager(13))));
        }
        Step::Reset => mediator.reset(),
        Step::RefuseEvery(n) => {
            let count = std::sync::atomic::AtomicUsize::new(0);
            let kinds = [RefusalKind::Exhausted, RefusalKind::Class, RefusalKind::OutsidePartition];
            f.link.refuse_with(move |request| {
                let now = count.fetch_add(1, Ordering::Relaxed);
                let grants = match request {
                    Request::CreateSpace(_) => {
                        return (now % n == n - 1).then(|| refused(RefusalKind::Quota));
                    }
                    Request::UpdateSpace { .. } => {
                        return (now % n == n - 1).then(|| refused(RefusalKind::OutsidePartition));
                    }
                    Request::CreateChannel { .. }
                    | Request::CreateObject { .. }
                    | Request::EnableChannel { .. }
                    | Request::DmaMap { .. } => true,
                    _ => false,
                };
                (grants && now % n == n - 1).then(|| refused(kinds[now % kinds.len()]))
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_driver_keeps_the_contract(
        (format, steps) in proptest::sample::select(&Gmmu::ALL[..])
            .prop_flat_map(|format| (Just(format), proptest::collection::vec(step(format), 1..120))),
    ) {
        let limits = Limits { tables: 300, snapshot_bytes: 1 << 20 };
        let config = MediatorConfig { limits: Some(limits), ..MediatorConfig::default() };
        let f = gsp_with(format, config, &[12, 16, 21], 49);
        f.write_directories();

        for step in steps {
            perform(&f, step);
        }

        f.link.refuse_nothing();
        f.mediator.reset();
        let status = f.mediator.status();
        prop_assert_eq!(status.state, State::Running);
        prop_assert_eq!((status.channels_bound, status.spaces, status.snapshot_bytes), (0, 0, 0));
    }
}
