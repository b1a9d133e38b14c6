//! Events of the back on their way to the driver: by message and by line.

use std::sync::Mutex;

use super::*;
use gpuvmk_backend::InterruptInterest;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, GraphicsError, HostError, MmuFault};
use gpuvmk_chip::{AccessKind, Engine, EngineSet, FaultReason};
use gpuvmk_pci::InterruptSink;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Line(bool),
    Message,
    /// Another process has sent it.
    Sent,
}

#[derive(Default)]
struct Sink(Mutex<Vec<Signal>>);

impl InterruptSink for Sink {
    fn set_intx(&self, asserted: bool) {
        self.0.lock().unwrap().push(Signal::Line(asserted));
    }

    fn fire_msi(&self, _: u16) {
        self.0.lock().unwrap().push(Signal::Message);
    }

    fn message_sent(&self, _: u16) {
        self.0.lock().unwrap().push(Signal::Sent);
    }
}

impl Sink {
    fn taken(&self) -> Vec<Signal> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A function whose driver enabled all interrupts of PFIFO and PGRAPH.
fn driven(msi: bool) -> (Gpu, Arc<Sink>) {
    let gpu = Gpu::new();
    let sink = Arc::new(Sink::default());
    gpu.function.connect_interrupts(Some(sink.clone()));
    enable(&gpu, msi);
    (gpu, sink)
}

fn enable(gpu: &Gpu, msi: bool) {
    gpu.config_wr(4, &[6, 0]);
    if msi {
        gpu.config_wr(0x6a, &[1, 0]);
    }
    gpu.wr(0x200, 0x1100);
    gpu.wr(0x2140, 0xffff_ffff);
    gpu.wr(0x2628, 1);
    gpu.wr(0x4010c, 0xffff_feff);
    gpu.wr(0x140, 1);
}

#[test]
fn message_is_sent_once_and_again_after_rearm_while_pending() {
    let (gpu, sink) = driven(true);
    gpu.back.events().non_stall(Engine::Graphics);
    gpu.back.events().non_stall(Engine::Graphics);
    assert_eq!(sink.taken(), [Signal::Message]);
    gpu.wr(0x140, 0);
    gpu.function.write(Region::Bar(0), 0x088704, &[0xff]).unwrap();
    assert_eq!(sink.taken(), []);
    assert_eq!((gpu.rd(0x100), gpu.rd(0x104)), (0x100, 0));
    assert_eq!(gpu.rd(0x2100) & gpu.rd(0x2140), 0x8000_0000);
    assert_eq!(gpu.rd(0x25a4), 1);
    gpu.wr(0x140, 1);
    assert_eq!(sink.taken(), [Signal::Message]);
    gpu.wr(0x140, 0);
    gpu.function.write(Region::Bar(0), 0x088704, &[0xff]).unwrap();
    gpu.wr(0x25a8, gpu.rd(0x25a8));
    gpu.wr(0x140, 1);
    assert_eq!((sink.taken(), gpu.rd(0x100)), (vec![], 0));
}

#[test]
fn end_of_work_that_the_driver_has_masked_is_brought_when_it_looks_or_enables_it() {
    let (gpu, sink) = driven(true);
    let interest = |gpu: &Gpu| gpu.back.ends.interest().unwrap();
    let keep = |gpu: &Gpu, engine| gpu.back.ends.keep(engine);
    assert_eq!(interest(&gpu), ARMED);

    gpu.wr(0x2140, 0x7fff_ffff);
    assert_eq!(interest(&gpu), InterruptInterest::Masked);
    // Each register that shows it.
    keep(&gpu, Engine::Graphics);
    assert_eq!(gpu.rd(0x2100), 0x8000_0000);
    keep(&gpu, Engine::COPY0);
    assert_eq!(gpu.rd(0x25a4), 1 | 1 << 4);
    keep(&gpu, Engine::COPY1);
    assert_eq!(gpu.rd(0x25a8 + 5 * 4), 1);
    for engine in [0, 4, 5] {
        gpu.wr(0x25a8 + engine * 4, 1);
    }
    assert_eq!((gpu.rd(0x2100), sink.taken()), (0, vec![]));

    keep(&gpu, Engine::Graphics);
    gpu.wr(0x2140, 0xffff_ffff);
    assert_eq!((interest(&gpu), sink.taken()), (InterruptInterest::Wake, vec![Signal::Message]));
    gpu.wr(0x2628, 0);
    assert_eq!(interest(&gpu), InterruptInterest::Masked);
    gpu.wr(0x2628, 1);
    gpu.function.reset();
    assert_eq!(interest(&gpu), InterruptInterest::Masked, "everything is masked after a reset");
    assert_eq!(interest(&Gpu::new()), InterruptInterest::Masked);
}

/// The interest while the next end of work is a message.
const ARMED: InterruptInterest = InterruptInterest::Message(EngineSet::all());

fn rearm(gpu: &Gpu) {
    gpu.function.write(Region::Bar(0), 0x088704, &[0xff]).unwrap();
}

#[test]
fn handler_finds_a_message_that_the_back_sent_as_if_the_function_had() {
    let (gpu, sink) = driven(true);
    for engine in [Engine::Graphics, Engine::COPY1] {
        assert_eq!(gpu.back.ends.interest(), Some(ARMED));
        gpu.back.ends.post(engine);
        assert_eq!(sink.taken(), [], "the function does not know yet");
        // As nouveau's handler does.
        gpu.wr(0x140, 0);
        assert_eq!(sink.taken(), [Signal::Sent]);
        let number = if engine == Engine::Graphics { 0 } else { 5 };
        assert_eq!((gpu.rd(0x100), gpu.rd(0x25a4)), (0x100, 1 << number));
        gpu.wr(0x25a8 + number * 4, 1);
        gpu.wr(0x140, 1);
        assert_eq!(
            gpu.back.ends.interest(),
            Some(InterruptInterest::Wake),
            "no other message before the driver allows it"
        );
        rearm(&gpu);
        assert_eq!(sink.taken(), []);
    }
    gpu.back.events().non_stall(Engine::Graphics);
    assert_eq!(sink.taken(), [Signal::Message]);
}

#[test]
fn message_that_the_back_sent_is_known_at_any_access_that_has_to_do_with_it() {
    let accesses: [fn(&Gpu); 6] = [
        |gpu| assert_eq!(gpu.rd(0x100), 0x100),
        |gpu| assert_eq!(gpu.rd(0x2100) & 0x8000_0000, 0x8000_0000),
        |gpu| gpu.wr(0x2140, 0),
        |gpu| gpu.wr(0x640, 0),
        |gpu| gpu.wr(0x25a8, 1),
        |gpu| gpu.config_wr(4, &[6, 0]),
    ];
    for (number, access) in accesses.into_iter().enumerate() {
        let (gpu, sink) = driven(true);
        gpu.back.ends.post(Engine::Graphics);
        access(&gpu);
        assert_eq!((sink.taken(), gpu.back.ends.any()), (vec![Signal::Sent], false), "access {number}");
    }
    let (gpu, sink) = driven(true);
    gpu.back.ends.post(Engine::Graphics);
    gpu.rd(0x0);
    assert!(gpu.back.ends.any(), "which chip it is has nothing to do with it");
    // What is pending still when the driver allows the next message is that message's cause.
    rearm(&gpu);
    assert_eq!(sink.taken(), [Signal::Sent, Signal::Message]);
    // The line follows once messages are off.
    rearm(&gpu);
    gpu.wr(0x25a8, 1);
    rearm(&gpu);
    sink.taken();
    gpu.back.ends.post(Engine::Graphics);
    gpu.config_wr(0x6a, &[0, 0]);
    assert_eq!(
        (sink.taken(), gpu.back.ends.interest()),
        (vec![Signal::Sent, Signal::Line(true)], Some(InterruptInterest::Wake))
    );
}

#[test]
fn reset_forgets_that_the_back_sent_a_message() {
    let (gpu, sink) = driven(true);
    gpu.back.ends.post(Engine::Graphics);
    gpu.function.reset();
    assert_eq!(gpu.back.ends.interest(), Some(InterruptInterest::Masked));
    sink.taken();
    enable(&gpu, true);
    sink.taken();
    rearm(&gpu);
    gpu.wr(0x25a8, 1);
    rearm(&gpu);
    sink.taken();
    assert_eq!(gpu.back.ends.interest(), Some(ARMED));
}

#[test]
fn message_that_could_not_be_sent_is_sent_by_the_function() {
    let (gpu, sink) = driven(true);
    gpu.back.ends.post(Engine::Graphics);
    gpu.back.events().unsent();
    assert_eq!(sink.taken(), [Signal::Message]);
    gpu.config_wr(0x6a, &[0, 0]);
    sink.taken();
    gpu.back.events().unsent();
    assert_eq!(sink.taken(), []);
}

#[test]
fn line_follows_the_level() {
    let (gpu, sink) = driven(false);
    gpu.back.events().non_stall(Engine::COPY1);
    assert_eq!(sink.taken(), [Signal::Line(true)]);
    let mut status = [0; 2];
    gpu.function.read(Region::Config, 6, &mut status).unwrap();
    assert_eq!(status[0] & 8, 8);
    gpu.wr(0x140, 0);
    assert_eq!(sink.taken(), [Signal::Line(false)]);
    gpu.wr(0x140, 1);
    gpu.wr(0x25a8 + 5 * 4, 1);
    assert_eq!(sink.taken(), [Signal::Line(true), Signal::Line(false)]);
}

#[test]
fn masks_of_pmc_and_configuration_space_hold_interrupts_back() {
    let (gpu, sink) = driven(false);
    gpu.wr(0x640, !0x100);
    gpu.back.events().non_stall(Engine::Graphics);
    assert_eq!((sink.taken(), gpu.rd(0x100)), (vec![], 0x100));
    gpu.wr(0x640, u32::MAX);
    assert_eq!(sink.taken(), [Signal::Line(true)]);
    gpu.config_wr(4, &[6, 4]);
    assert_eq!(sink.taken(), [Signal::Line(false)]);
    gpu.config_wr(4, &[6, 0]);
    assert_eq!(sink.taken(), [Signal::Line(true)]);
    gpu.config_wr(0x6a, &[1, 0]);
    assert_eq!(sink.taken(), [Signal::Line(false), Signal::Message]);
}

#[test]
fn no_message_without_bus_mastering() {
    let (gpu, sink) = driven(true);
    gpu.config_wr(4, &[2, 0]);
    gpu.back.events().non_stall(Engine::Graphics);
    assert_eq!(sink.taken(), []);
    gpu.config_wr(4, &[6, 0]);
    assert_eq!(sink.taken(), [Signal::Message]);
}

#[test]
fn new_sink_learns_the_level() {
    let (gpu, sink) = driven(false);
    gpu.back.events().non_stall(Engine::Graphics);
    sink.taken();
    let other = Arc::new(Sink::default());
    gpu.function.connect_interrupts(Some(other.clone()));
    assert_eq!((sink.taken(), other.taken()), (vec![Signal::Line(false)], vec![Signal::Line(true)]));
    gpu.function.reset();
    assert_eq!(other.taken(), [Signal::Line(false)]);
}

#[test]
fn engine_fault_is_reported_with_its_channels_instance() {
    let (gpu, sink) = driven(true);
    gpu.wr(0x3000 + 8, 0xc001_fc68);
    gpu.back.events().stopped(ChannelStop::new(
        GuestChannel(1),
        MmuFault {
            unit: FaultUnit::Host,
            address: GpuVa(0x3f_0000_0000),
            access: AccessKind::Read,
            reason: FaultReason::PageTableNotPresent,
        },
    ));
    assert_eq!(sink.taken(), [Signal::Message]);
    assert_eq!(gpu.rd(0x2100) & 0x1000_0000, 0x1000_0000);
    assert_eq!(gpu.rd(0x259c), 0x80);
    assert_eq!((gpu.rd(0x2870), gpu.rd(0x2874), gpu.rd(0x2878)), (0x1fc68, 0, 0x3f));
    assert_eq!(gpu.rd(0x287c), 0x640);
    gpu.wr(0x259c, 0x80);
    assert_eq!(gpu.rd(0x100), 0);
}

#[test]
fn host_error_is_reported_by_its_pbdma() {
    let (gpu, sink) = driven(true);
    gpu.back.events().stopped(ChannelStop::new(
        GuestChannel(2),
        HostError { pbdma: 0, status: 0x20_0000, method: 0x2_0200, data: 3 },
    ));
    assert_eq!(sink.taken(), [Signal::Message]);
    assert_eq!((gpu.rd(0x2100), gpu.rd(0x25a0)), (0x2000_0000, 1));
    let stat = gpu.rd(0x40108) & gpu.rd(0x4010c);
    assert_eq!(
        (stat, gpu.rd(0x400c0) & 0x7_3ffc, gpu.rd(0x400c4), gpu.rd(0x40120)),
        (0x20_0000, 0x2_0200, 3, 2)
    );
    gpu.wr(0x400c0, 0x8060_0008);
    gpu.wr(0x40108, stat);
    gpu.wr(0x25a0, 1);
    assert_eq!(gpu.rd(0x100), 0);
}

#[test]
fn graphics_error_is_reported_with_class_and_method() {
    let (gpu, sink) = driven(true);
    gpu.wr(0x400100, 0xffff_ffff);
    gpu.wr(0x40013c, 0xffff_ffff);
    gpu.wr(0x3000 + 16, 0xc000_0abc);
    gpu.back.events().stopped(ChannelStop::new(
        GuestChannel(2),
        GraphicsError { status: 0x20, subchannel: 1, class: 0x1234, method: 0x100, data: 9 },
    ));
    assert_eq!((sink.taken(), gpu.rd(0x100)), (vec![Signal::Message], 0x1000));
    assert_eq!((gpu.rd(0x400100), gpu.rd(0x400704), gpu.rd(0x400708)), (0x20, 0x1_0100, 9));
    assert_eq!((gpu.rd(0x409b00) & 0x0fff_ffff, gpu.rd(0x404204)), (0xabc, 0x1234));
    gpu.wr(0x400100, 0x20);
    gpu.wr(0x400500, 0x1_0001);
    assert_eq!(gpu.rd(0x100), 0);
}

#[test]
fn runlist_commit_interrupts_when_done() {
    let (gpu, sink) = driven(true);
    gpu.wr(0x2270, 0x100);
    gpu.wr(0x2274, 0x01f0_0000);
    assert_eq!(sink.taken(), [Signal::Message]);
    assert_eq!((gpu.rd(0x2100), gpu.rd(0x2a00)), (0x4000_0000, 0x1000_0000));
    gpu.wr(0x2a00, 0x1000_0000);
    assert_eq!(gpu.rd(0x2100), 0);
}

#[test]
fn alarm_raises_the_timer_interrupt_when_its_time_has_come() {
    let (gpu, sink) = driven(true);
    gpu.wr(0x9420, 0x10_0000);
    gpu.wr(0x9140, 1);
    assert_eq!(gpu.rd(0x100), 0);
    gpu.clock.advance(0x10_0000);
    assert_eq!(gpu.rd(0x100), 0x10_0000);
    gpu.wr(0x9100, 1);
    assert_eq!(gpu.rd(0x100), 0);
    drop(sink);
}

#[test]
fn alarm_thread_delivers_without_any_access() {
    let back = Arc::new(FakeBackend::new(1 << 20));
    let function = Gf100Function::new(back.clone(), Gf100Config::default()).unwrap();
    let gpu = Gpu { function, back, clock: Arc::default() };
    let sink = Arc::new(Sink::default());
    gpu.function.connect_interrupts(Some(sink.clone()));
    gpu.wr(0x140, 1);
    gpu.wr(0x9140, 1);
    let soon = gpu.rd(0x9400).wrapping_add(2_000_000);
    gpu.wr(0x9420, soon);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while sink.0.lock().unwrap().is_empty() {
        assert!(std::time::Instant::now() < deadline, "no interrupt");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(sink.taken(), [Signal::Line(true)]);
}
