//! Stopped channels on their way to the driver, also while GSP is busy; the back's end.

use super::driver::Driver;
use super::*;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, MmuFault, StopCause};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};
use gpuvmk_gsp::abi::r570_144::events::rpc_rc_triggered_v17_02;
use zerocopy::FromBytes;

const USERD: u64 = 0x10_0000;

fn fault(channel: u16) -> ChannelStop<GuestChannel> {
    ChannelStop::new(GuestChannel(channel), write_fault(FaultUnit::Engine(Engine::COPY1)))
}

pub fn write_fault(unit: FaultUnit) -> MmuFault {
    MmuFault {
        unit,
        address: GpuVa(0x12_3456_7000),
        access: AccessKind::Write,
        reason: FaultReason::WriteToReadOnly,
    }
}

fn told(driver: &mut Driver<'_>) -> rpc_rc_triggered_v17_02 {
    let message = driver.receive().unwrap();
    assert_eq!(message.function, 0x1004);
    rpc_rc_triggered_v17_02::read_from_prefix(&message.body).unwrap().0
}

#[test]
fn fault_becomes_a_message_and_gsps_interrupt() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    assert_eq!(gpu.rd(0x11_0008), 0, "what GSP says at its boot is polled for");
    let sink = gpu.listen(true, &[3]);
    gpu.back.events().stopped(fault(0));
    assert_eq!(sink.taken(), [Signal::Message]);
    assert_eq!((gpu.rd(0xb8_1600), gpu.rd(0xb8_100c)), (2, 1));
    assert_eq!((gpu.rd(0x11_0008), gpu.rd(0x11_1528)), (0x40, 0x40));
    gpu.wr(0x11_0004, 0x40);
    assert_eq!(gpu.rd(0x11_0008), 0);
    let event = told(&mut driver);
    assert_eq!((event.chid, event.exceptType, event.mmuFaultType), (3, 31, 6));
    assert_eq!((event.mmuFaultAddrHi, event.mmuFaultAddrLo), (0x12, 0x3456_7000));
    // It stands still: no second message, no doorbell.
    gpu.back.events().stopped(ChannelStop::new(GuestChannel(0), StopCause::Manager(13)));
    assert_eq!(driver.receive(), None);
    gpu.back.calls();
    gpu.wr(0xbb_0090, 1 << 16 | 3);
    assert_eq!(gpu.back.calls(), []);
}

#[test]
fn event_between_leaf_and_acknowledgement_makes_no_stray_interrupt() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    driver.channel(4, USERD + 0x200);
    let sink = gpu.listen(true, &[3]);
    gpu.wr(0xb8_100c, 1);
    gpu.back.events().stopped(fault(0));
    sink.taken();
    // The handler: tree off, leaf cleared; then the second event; then GSP is acknowledged and the tree
    // armed.
    gpu.wr(0xb8_1610, 0xf);
    gpu.wr(0xb8_100c, 1);
    gpu.back.events().stopped(fault(1));
    gpu.wr(0x11_0004, 0x40);
    gpu.wr(0xb8_1608, 0xf);
    assert_eq!(sink.taken(), []);
    assert_eq!((gpu.rd(0xb8_100c), gpu.rd(0x11_0008)), (0, 0));
    assert_eq!((told(&mut driver).chid, told(&mut driver).chid), (3, 4));
}

#[test]
fn event_on_the_thread_that_holds_gsp_is_told_when_it_finishes() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    gpu.back.interrupt_creation(|events| events.stopped(fault(0)));
    driver.channel(4, USERD + 0x200);
    assert_eq!(told(&mut driver).chid, 3);
}

#[test]
fn event_thread_does_not_wait_for_a_command_that_waits_for_it() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    gpu.back.interrupt_creation(|events| {
        std::thread::scope(|scope| {
            // Joined at the end of the scope: the command goes on only after the events were taken.
            scope.spawn(|| {
                events.stopped(fault(0));
                events.non_stall(Engine::COPY1);
            });
        });
    });
    driver.channel(4, USERD + 0x200);
    assert_eq!(told(&mut driver).chid, 3);
    assert_eq!(gpu.rd(0xb8_1004), 1 << 2);
}

#[test]
fn faults_of_cpu_accesses_are_counted_only() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    gpu.back.events().fault(write_fault(FaultUnit::Bar1));
    assert_eq!(driver.receive(), None);
    assert_eq!(gpu.function.counters().window_faults, 1);
}

#[test]
fn events_of_channels_that_nobody_has_are_dropped() {
    let gpu = Gpu::new();
    gpu.back.events().stopped(fault(0));
    let mut driver = Driver::booted(&gpu);
    gpu.back.events().stopped(fault(7));
    gpu.back.events().stopped(fault(u16::MAX));
    assert_eq!(driver.receive(), None);
}

#[test]
fn lost_back_reads_ones_until_a_reset() {
    let gpu = Gpu::new();
    gpu.back.events().lost("test");
    assert_eq!((gpu.rd(0), gpu.bar_rd(1, 0), gpu.bar_rd(3, 0)), (u32::MAX, u32::MAX, u32::MAX));
    gpu.wr(0x1234, 5);
    assert_eq!(gpu.config_rd(0), 0x2330_10de);
    gpu.function.reset();
    assert_eq!((gpu.rd(0), gpu.rd(0x1234)), (0x1800_00a1, 0));
}

#[test]
fn events_after_the_function_is_gone_do_nothing() {
    let Gpu { function, back, .. } = Gpu::new();
    let events = back.events();
    drop(function);
    events.stopped(fault(0));
    events.non_stall(Engine::Graphics);
    assert_eq!(back.calls(), []);
}
