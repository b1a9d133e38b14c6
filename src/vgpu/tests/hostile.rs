//! Random requests of a random driver over random memory: nothing panics, and the aggregator's contract holds
//! (the fake link checks it). Refusals come at random too.

use proptest::prelude::*;

use super::*;
use crate::State;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, HostError};
use gpuvmk_pci::{DmaBacking, DmaMapping};
use gpuvmk_shadow_pagetable::Limits;

#[derive(Clone, Copy, Debug)]
enum Step {
    Bind(u16, Option<u64>),
    Enable(u16, bool),
    Runlist(u64, u32),
    Preempt(u16),
    Flush(u64, bool),
    Fifo(bool, bool),
    Block(bool),
    Doorbell(u16, u32),
    Write(u64, u64),
    Instance(u16, u64),
    Map(u64),
    Unmap(u64),
    Fault(u16),
    Preempted(u16),
    Reset,
    RefuseEvery(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let channel = || 0..CHANNELS + 2;
    let page = || prop_oneof![9 => (0u64..VRAM >> 12).prop_map(|page| page << 12), 1 => any::<u64>()];
    prop_oneof![
        (channel(), proptest::option::of(page())).prop_map(|(id, at)| Step::Bind(id, at)),
        (channel(), any::<bool>()).prop_map(|(id, on)| Step::Enable(id, on)),
        (channel(), any::<bool>()).prop_map(|(id, on)| Step::Enable(id, on)),
        (page(), any::<u32>()).prop_map(|(at, count)| Step::Runlist(at, count)),
        channel().prop_map(Step::Preempt),
        (page(), any::<bool>()).prop_map(|(at, hub)| Step::Flush(at, hub)),
        (any::<bool>(), any::<bool>()).prop_map(|(on, large)| Step::Fifo(on, large)),
        any::<bool>().prop_map(Step::Block),
        (channel(), any::<u32>()).prop_map(|(id, put)| Step::Doorbell(id, put)),
        (page(), any::<u64>()).prop_map(|(at, value)| Step::Write(at, value)),
        (channel(), page()).prop_map(|(id, directory)| Step::Instance(id, directory)),
        (channel(), page()).prop_map(|(id, directory)| Step::Instance(id, directory)),
        (0u64..8).prop_map(Step::Map),
        (0u64..8).prop_map(Step::Unmap),
        channel().prop_map(Step::Fault),
        channel().prop_map(Step::Preempted),
        Just(Step::Reset),
        (2usize..40).prop_map(Step::RefuseEvery),
    ]
}

fn perform(f: &Fixture, step: Step) {
    let mediator = &f.mediator;
    match step {
        Step::Bind(id, at) => mediator.bind_channel(GuestChannel(id), at.map(vram)),
        Step::Enable(id, enabled) => mediator.enable_channel(GuestChannel(id), enabled),
        Step::Runlist(at, count) => mediator.commit_runlist(vram(at), count),
        Step::Preempt(id) => mediator.preempt_channel(GuestChannel(id)),
        Step::Flush(at, hub_only) => {
            mediator.flush_tlb(FlushScope { page_directory: vram(at), hub_only });
        }
        Step::Fifo(enabled, large_pages_64k) => {
            mediator.set_fifo_state(FifoState { enabled, large_pages_64k, ..FIFO_ON });
        }
        Step::Block(blocked) => mediator.block_runlist(blocked),
        Step::Doorbell(id, put) => mediator.doorbell(GuestChannel(id), put),
        Step::Write(at, value) => {
            let _ = mediator.write_memory(vram(at), &value.to_le_bytes());
        }
        Step::Instance(id, directory) => {
            f.write_instance(id);
            f.write_u64(INSTANCE + u64::from(id) * 0x1000 + ramin::PAGE_DIRECTORY_LO, directory);
            f.bind(id);
            mediator.enable_channel(GuestChannel(id), true);
        }
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
        Step::Fault(id) => {
            let error = HostError { pbdma: 0, status: 0, method: 0, data: 0 };
            f.link.handler().event(Event::Stopped(ChannelStop::new(GuestChannel(id), error)));
        }
        Step::Preempted(id) => f.link.handler().event(Event::Preempted(GuestChannel(id))),
        Step::Reset => mediator.reset(),
        Step::RefuseEvery(n) => {
            let count = std::sync::atomic::AtomicUsize::new(0);
            let kinds = [RefusalKind::Exhausted, RefusalKind::Quota, RefusalKind::OutsidePartition];
            f.link.refuse_with(move |request| {
                let now = count.fetch_add(1, Ordering::Relaxed);
                // Taking away is never refused.
                let grants = matches!(
                    request,
                    Request::CreateSpace(_)
                        | Request::CreateChannel { .. }
                        | Request::SetEngines { .. }
                        | Request::UpdateSpace { .. }
                        | Request::DmaMap { .. }
                );
                (grants && now % n == n - 1).then(|| refused(kinds[now % kinds.len()]))
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_driver_keeps_the_contract(
        seed in proptest::collection::vec(any::<u64>(), 1..32),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let limits = Limits { tables: 12, snapshot_bytes: 1 << 20 };
        let f = fixture_with(MediatorConfig { limits: Some(limits), ..MediatorConfig::default() });
        let words: Vec<u8> = seed.iter().flat_map(|word| word.to_le_bytes()).collect();
        let page: Vec<u8> = words.iter().copied().cycle().take(4096).collect();
        for at in (0..VRAM).step_by(4096) {
            f.mediator.write_memory(vram(at), &page).unwrap();
        }

        for step in steps {
            perform(&f, step);
        }

        f.link.refuse_nothing();
        f.mediator.reset();
        let status = f.mediator.status();
        prop_assert_eq!(status.state, State::Running);
        prop_assert_eq!((status.channels_bound, status.spaces, status.snapshot_bytes), (0, 0, 0));
        prop_assert!(!f.mediator.preempt_pending());
    }
}
