//! Channels as nouveau drives them.

mod events;

use super::*;
use crate::status::State;
use gpuvmk_aggregator::protocol::{GuestMapping, GuestTarget};
use gpuvmk_chip::addr::{GpuVa, GuestChannel, GuestVram};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, GraphicsError, HostError, MmuFault};
use gpuvmk_chip::{AccessKind, EngineSet, FaultReason};

fn create(n: u16, engines: EngineSet) -> Request {
    Request::CreateChannel {
        context_of: None,
        channel: GuestChannel(n),
        space: SpaceId(0),
        gpfifo: GpuVa(GPFIFO),
        gpfifo_entries_log2: 10,
        userd: GuestVram(USERD + u64::from(n) * 0x1000),
        engines,
    }
}

fn enable(n: u16, enabled: bool) -> Request {
    Request::EnableChannel { channel: GuestChannel(n), enabled }
}

fn fault(channel: u16) -> ChannelStop<GuestChannel> {
    ChannelStop::new(GuestChannel(channel), refused_access(GpuVa(0xdead_0000), FaultReason::PageNotPresent))
}

fn refused_access(address: GpuVa, reason: FaultReason) -> MmuFault {
    MmuFault { unit: FaultUnit::Host, address, access: AccessKind::Read, reason }
}

#[test]
fn life_of_a_channel_becomes_these_requests() {
    let f = fixture();
    let id = GuestChannel(1);
    f.write_instance(1);
    f.write_pte(0x100, vram(0x5000));
    f.link.take();

    f.bind(1);
    assert_eq!(f.link.take(), []);

    f.mediator.enable_channel(GuestChannel(1), true);
    let page = GuestMapping {
        va: GpuVa(0x10_0000),
        pages: 1,
        page_shift: 12,
        target: GuestTarget::Vram(GuestVram(0x5000)),
        read_only: false,
        kind: 0,
    };
    let expected = [
        Request::CreateSpace(SpaceId(0)),
        Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![page] },
        create(1, EngineSet::empty()),
        enable(1, true),
    ];
    assert_eq!(f.link.take(), expected);

    f.commit(&[1]);
    assert_eq!(f.link.take(), [Request::SetRunlist(vec![id])]);

    // nouveau stops and preempts the channel, writes the context pointer, and starts it again.
    f.mediator.enable_channel(GuestChannel(1), false);
    f.mediator.preempt_channel(GuestChannel(1));
    assert!(f.mediator.preempt_pending());
    f.link.handler().event(Event::Preempted(id));
    assert!(!f.mediator.preempt_pending());
    f.write_u64(INSTANCE + 0x1000 + ramin::GRAPHICS_CONTEXT_LO, 0x77_7000 | 4);
    f.mediator.enable_channel(GuestChannel(1), true);
    let expected = [
        enable(1, false),
        Request::Preempt(id),
        Request::SetEngines { channel: id, engines: EngineSet::GRAPHICS },
        enable(1, true),
    ];
    assert_eq!(f.link.take(), expected);

    f.mediator.doorbell(GuestChannel(1), 3);
    assert_eq!(*f.link.doorbells.lock().unwrap(), [Doorbell { channel: id, gp_put: 3 }]);
    assert_eq!(f.link.take(), []);

    f.link.handler().event(Event::Stopped(fault(1)));
    assert_eq!(f.face.take(), [Told::Stopped(fault(1))]);

    // Recovery: stop, a runlist without it, unbind.
    f.mediator.enable_channel(GuestChannel(1), false);
    f.commit(&[]);
    f.mediator.bind_channel(GuestChannel(1), None);
    let expected = [
        enable(1, false),
        Request::SetRunlist(vec![]),
        Request::DestroyChannel(id),
        Request::DestroySpace(SpaceId(0)),
    ];
    assert_eq!(f.link.take(), expected);
    let status = f.mediator.status();
    assert_eq!((status.channels_bound, status.spaces, status.tables), (0, 0, 0));
}

#[test]
fn bound_again_channel_number_gets_a_new_host_channel() {
    let f = fixture();
    f.start(2);
    f.mediator.enable_channel(GuestChannel(2), false);
    f.link.take();

    f.bind(2);
    f.mediator.enable_channel(GuestChannel(2), true);

    let expected = [
        Request::DestroyChannel(GuestChannel(2)),
        Request::DestroySpace(SpaceId(0)),
        Request::CreateSpace(SpaceId(0)),
        create(2, EngineSet::empty()),
        enable(2, true),
    ];
    assert_eq!(f.link.take(), expected);
}

#[test]
fn start_bit_that_was_set_before_the_channel_was_bound_counts() {
    let f = fixture();
    f.write_instance(1);
    f.mediator.enable_channel(GuestChannel(1), true);
    assert_eq!(f.link.take(), []);

    f.bind(1);
    assert_eq!(f.link.take()[1..], [create(1, EngineSet::empty()), enable(1, true)]);

    // Unbinding keeps the bit, stopping clears it.
    f.mediator.bind_channel(GuestChannel(1), None);
    f.mediator.enable_channel(GuestChannel(1), false);
    f.link.take();
    f.bind(1);
    assert_eq!(f.link.take(), []);
}

#[test]
fn channels_of_one_page_directory_share_a_space() {
    let f = fixture();
    f.start(0);
    f.write_instance(1);
    f.bind(1);
    f.mediator.enable_channel(GuestChannel(1), true);
    assert_eq!(f.link.take(), [create(1, EngineSet::empty()), enable(1, true)]);

    f.mediator.bind_channel(GuestChannel(0), None);
    assert_eq!(f.link.take(), [Request::DestroyChannel(GuestChannel(0))]);

    f.mediator.bind_channel(GuestChannel(1), None);
    assert_eq!(f.link.take(), [Request::DestroyChannel(GuestChannel(1)), Request::DestroySpace(SpaceId(0))]);
}

#[test]
fn runlist_committed_before_the_start_takes_effect_with_it() {
    let f = fixture();
    f.write_instance(3);
    f.bind(3);
    f.commit(&[3]);
    assert_eq!(f.link.take(), [Request::SetRunlist(vec![])]);

    f.mediator.enable_channel(GuestChannel(3), true);

    let expected = [
        Request::CreateSpace(SpaceId(0)),
        create(3, EngineSet::empty()),
        Request::SetRunlist(vec![GuestChannel(3)]),
        enable(3, true),
    ];
    assert_eq!(f.link.take(), expected);
}

#[test]
fn runlist_is_filtered_to_distinct_channels_of_the_guest() {
    let f = fixture();
    f.start(0);
    f.commit(&[0, 0, 5, u32::from(CHANNELS), 0x1_0000]);
    assert_eq!(f.link.take(), [Request::SetRunlist(vec![GuestChannel(0)])]);
    assert_eq!(f.mediator.status().counts.runlist_entries_dropped, 3);
}

#[test]
fn nothing_runs_while_pfifo_is_off_or_scheduling_is_blocked() {
    let f = fixture();
    f.start(0);
    f.commit(&[0]);
    let empty = || Request::SetRunlist(vec![]);
    let full = || Request::SetRunlist(vec![GuestChannel(0)]);
    assert_eq!(f.link.take(), [full()]);

    f.mediator.set_fifo_state(FifoState { enabled: false, ..FIFO_ON });
    f.mediator.set_fifo_state(FIFO_ON);
    f.mediator.set_fifo_state(FifoState { pbdma_mask: 0, ..FIFO_ON });
    f.mediator.set_fifo_state(FIFO_ON);
    f.mediator.block_runlist(true);
    f.mediator.block_runlist(true);
    f.mediator.block_runlist(false);

    assert_eq!(f.link.take(), [empty(), full(), empty(), full(), empty(), full()]);
}

#[test]
fn context_pointer_written_while_the_channel_runs_counts_with_the_next_doorbell() {
    // As nouveau of Linux 6.1 does: no stop, no preemption.
    let f = fixture();
    f.start(1);
    f.write_u32(USERD + 0x1000 + ramin::USERD_GP_PUT, 2);
    f.write_u64(INSTANCE + 0x1000 + ramin::COPY1_CONTEXT_LO, 0x77_7000 | 4);

    f.mediator.doorbell(GuestChannel(1), 2);
    f.mediator.doorbell(GuestChannel(1), 3);

    let engines = Request::SetEngines { channel: GuestChannel(1), engines: EngineSet::COPY1 };
    assert_eq!(f.link.take(), [enable(1, false), engines, enable(1, true)]);
    let rung = |gp_put| Doorbell { channel: GuestChannel(1), gp_put };
    assert_eq!(*f.link.doorbells.lock().unwrap(), [rung(2), rung(3)]);
}

#[test]
fn doorbell_of_an_absent_channel_is_dropped_and_made_up_for_at_the_start() {
    let f = fixture();
    f.write_instance(4);
    f.write_u32(USERD + 0x4000 + ramin::USERD_GP_PUT, 9);
    f.bind(4);
    for channel in [4, CHANNELS, u16::MAX] {
        f.mediator.doorbell(GuestChannel(channel), 9);
    }
    assert!(f.link.doorbells.lock().unwrap().is_empty());

    f.mediator.enable_channel(GuestChannel(4), true);

    assert_eq!(*f.link.doorbells.lock().unwrap(), [Doorbell { channel: GuestChannel(4), gp_put: 9 }]);
    assert_eq!(f.mediator.status().counts.doorbells_dropped, 3);
}

#[test]
fn preemption_that_completes_inside_the_request_is_not_pending() {
    let f = fixture();
    f.start(0);
    f.link.in_request.lock().unwrap().push(Event::Preempted(GuestChannel(0)));

    f.mediator.preempt_channel(GuestChannel(0));

    assert!(!f.mediator.preempt_pending());
}

#[test]
fn preemption_of_an_unbound_channel_or_one_that_goes_is_not_pending() {
    let f = fixture();
    f.mediator.preempt_channel(GuestChannel(6));
    assert!(!f.mediator.preempt_pending());

    f.start(0);
    f.mediator.preempt_channel(GuestChannel(0));
    f.mediator.bind_channel(GuestChannel(0), None);
    assert!(!f.mediator.preempt_pending());
}

#[test]
fn faulted_channel_that_is_started_again_is_stopped_first() {
    let f = fixture();
    f.start(0);
    f.link.handler().event(Event::Stopped(fault(0)));
    f.mediator.enable_channel(GuestChannel(0), true);
    assert_eq!(f.link.take(), [enable(0, false), enable(0, true)]);
}

#[test]
fn channel_with_a_bad_instance_block_never_reaches_the_host() {
    let f = fixture();
    f.write_instance(0);
    f.write_u64(INSTANCE + ramin::RAMFC_USERD_LO, VRAM);
    f.bind(0);
    f.mediator.bind_channel(GuestChannel(1), Some(vram(VRAM - 0x100)));
    f.link.take();

    f.mediator.enable_channel(GuestChannel(0), true);
    f.mediator.enable_channel(GuestChannel(1), true);

    assert_eq!(f.link.take(), []);
    assert_eq!(f.mediator.status().counts.bad_instances, 2);
}

#[test]
fn channel_numbers_beyond_the_grant_do_nothing() {
    let f = fixture();
    f.link.take();
    f.mediator.bind_channel(GuestChannel(CHANNELS), Some(vram(INSTANCE)));
    f.mediator.enable_channel(GuestChannel(CHANNELS), true);
    f.mediator.enable_channel(GuestChannel(CHANNELS), false);
    f.mediator.preempt_channel(GuestChannel(u16::MAX));
    f.mediator.bind_channel(GuestChannel(u16::MAX), None);
    assert_eq!(f.link.take(), []);
    assert_eq!(f.mediator.status().counts.bad_channels, 3);
}
