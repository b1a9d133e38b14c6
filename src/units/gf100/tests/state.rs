//! A function that is saved and restored answers as one that was left alone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{
    ChannelStop, FaultUnit, GraphicsError, Hang, HangKind, HostError, MmuFault,
};
use gpuvmk_chip::gf100::regs::ptimer::NV_PTIMER_INTR_EN_0;
use gpuvmk_chip::{AccessKind, Engine, FaultReason};
use gpuvmk_saved_state::testing::{
    corrupted, corrupted_states_are_refused_or_taken_as_they_are, through_text,
};
use gpuvmk_trace::Entry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fake::Call;
use super::probe::start_engines;
use super::*;
use crate::RestoreError;
use crate::gf100::Gf100State;
use crate::gf100::fecs::ContextSwitch;
use crate::gf100::idle::Activity;
use crate::gf100::pbus::Pbus;
use crate::gf100::pce::Pce;
use crate::gf100::pfb::Pfb;
use crate::gf100::pfifo::Pfifo;
use crate::gf100::pgraph::Pgraph;
use crate::gf100::pmc::Pmc;
use crate::gf100::pmu::Pmu;
use crate::played::{self, Sink};
use crate::ptimer::Ptimer;
use gpuvmk_backend::InterruptInterest;

/// All that shows outside after an entry of a trace.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    read: Vec<u8>,
    calls: Vec<Call>,
    seen: (bool, u64),
}

/// A function that a trace is played into.
struct Player {
    gpu: Gpu,
    sink: Arc<Sink>,
}

impl Player {
    fn new(vram: u64) -> Self {
        let back = Arc::new(FakeBackend::new(usize::try_from(vram).unwrap()));
        let clock = Arc::new(ManualClock::default());
        let config = Gf100Config { clock: clock.clone(), ..Gf100Config::default() };
        let function = Gf100Function::new(back.clone(), config).unwrap();
        let sink = Arc::new(Sink::default());
        function.connect_interrupts(Some(sink.clone()));
        Self { gpu: Gpu { function, back, clock }, sink }
    }

    /// Something that happens behind the registers.
    fn event(&self, random: &mut Rng) {
        let events = self.gpu.back.events();
        let channel = GuestChannel(random.u16(0..8));
        let engine = *random.choice(&[Engine::Graphics, Engine::COPY0, Engine::COPY1]).unwrap();
        match random.u8(0..6) {
            0 => events.non_stall(engine),
            1 => events.stopped(ChannelStop::new(
                channel,
                MmuFault {
                    unit: FaultUnit::Engine(engine),
                    address: GpuVa(random.u64(0..1 << 40)),
                    access: AccessKind::Write,
                    reason: FaultReason::PageNotPresent,
                },
            )),
            2 => {
                let pbdma = random.u8(0..3);
                events.stopped(ChannelStop::new(
                    channel,
                    HostError { pbdma, status: 1 << 18, method: 0x10, data: 7 },
                ));
            }
            3 => events.stopped(ChannelStop::new(
                channel,
                GraphicsError {
                    status: 0x10,
                    subchannel: random.u8(0..8),
                    class: 0x9039,
                    method: 0x304,
                    data: random.u32(..),
                },
            )),
            4 => events.stopped(ChannelStop::new(channel, Hang { engine, kind: HangKind::Engine })),
            _ => self.gpu.back.ends.keep(engine),
        }
    }

    fn step(&self, entry: &Entry) -> Shown {
        let read = played::play(&self.gpu.function, entry);
        self.gpu.clock.advance(1_000);
        Shown { read, calls: self.gpu.back.calls(), seen: self.sink.seen() }
    }

    fn restore(&mut self) {
        self.gpu = self.gpu.restored();
        self.gpu.function.connect_interrupts(Some(self.sink.clone()));
    }
}

/// Plays a golden trace, with events of the back, and has `restore` say where the function is replaced.
fn play(trace: &(Vec<Entry>, u64), restore: impl Fn(usize) -> bool) -> Vec<Shown> {
    let (entries, vram) = trace;
    let mut player = Player::new(*vram);
    let mut random = Rng::with_seed(7);
    let mut shown = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if random.u8(0..16) == 0 {
            player.event(&mut random);
        }
        if restore(index) {
            player.restore();
        }
        shown.push(player.step(entry));
    }
    shown
}

#[track_caller]
fn answers_are_those_of_a_function_that_was_left_alone(name: &str) {
    let trace = played::golden(name);
    let alone = play(&trace, |_| false);
    let mut random = Rng::with_seed(trace.0.len() as u64);
    let at_random: Vec<_> = (0..60).map(|_| random.usize(0..trace.0.len())).collect();
    let alarms = trace.0.iter().filter_map(|entry| played::written(entry, NV_PTIMER_INTR_EN_0.0));
    assert!(alarms.into_iter().all(|enabled| enabled == 0), "alarms go off in the host's time");
    // Without engines, a few answers are not those of the trace.
    let answers = trace
        .0
        .iter()
        .zip(&alone)
        .filter_map(|(entry, shown)| played::recorded(entry).map(|recorded| recorded == shown.read));
    let answers: Vec<_> = answers.collect();
    let same = answers.iter().filter(|same| **same).count();
    assert!(answers.len() > 1_900 && same * 100 > answers.len() * 99, "{same} of {}", answers.len());
    for (index, (replaced, alone)) in
        play(&trace, |index| index % 1_999 == 0 || at_random.contains(&index)).iter().zip(&alone).enumerate()
    {
        assert_eq!(replaced, alone, "entry {index}: {:?}", trace.0[index]);
    }
}

#[test]
fn restored_in_the_middle_of_a_probe_by_linux_6_1() {
    answers_are_those_of_a_function_that_was_left_alone("gf100-linux-6.1.trace.xz");
}

#[test]
fn restored_in_the_middle_of_a_probe_by_linux_6_12() {
    answers_are_those_of_a_function_that_was_left_alone("gf100-linux-6.12.trace.xz");
}

#[test]
fn restored_in_the_middle_of_a_probe_by_linux_7_2() {
    answers_are_those_of_a_function_that_was_left_alone("gf100-linux-7.2.trace.xz");
}

/// The state that version 1 wrote of [`in_use`].
const VERSION_1: &str = include_str!("state-1.json");

/// A function of which every unit is in use.
fn in_use() -> Gpu {
    let gpu = Gpu::new();
    start_engines(&gpu);
    gpu.config_wr(4, &[6, 0]);
    gpu.config_wr(0x6a, &[1, 0]);
    gpu.wr(0x140, 1);
    gpu.wr(0x2140, u32::MAX);
    gpu.wr(0x2254, 0x1000_0400);
    gpu.wr(0x2628, u32::MAX);
    gpu.wr(0x2270, 0x1fe0);
    gpu.wr(0x2274, 0x10_0002);
    // A PBDMA's interrupts, the MMU's directory, large pages of 64 KiB, both windows, PRAMIN.
    gpu.wr(0x4_010c, u32::MAX);
    gpu.wr(0x10_0cb8, 0x001f_df70);
    gpu.wr(0x10_0c80, 1);
    gpu.back.put(0x7200, 0x9000);
    gpu.back.put(0x7208, 0xff_ffff);
    gpu.wr(0x1704, 0x8000_0007);
    gpu.wr(0x1714, 0x8000_0007);
    gpu.wr(0x1700, 0x100);
    // Time that was set, and an alarm.
    gpu.wr(0x9410, 1);
    gpu.wr(0x9400, 0x1a07_debf);
    gpu.wr(0x9420, 0x1000);
    // An idle counter that counts always; what is on no list.
    gpu.wr(0x10_a51c, 3);
    gpu.wr(0x60_0000, 5);
    gpu.clock.advance(1_000_000);
    for channel in 0..4 {
        gpu.wr(0x3000 + 8 * channel, 0x8000_0100 + channel);
        gpu.wr(0x3004 + 8 * channel, 0x001f_0001);
        let channel = GuestChannel(channel as u16);
        let fault = MmuFault {
            unit: FaultUnit::Engine(Engine::Graphics),
            address: GpuVa(0x12_3456),
            access: AccessKind::Read,
            reason: FaultReason::PageNotPresent,
        };
        let events = gpu.back.events();
        events.stopped(ChannelStop::new(channel, fault));
        events.stopped(ChannelStop::new(
            channel,
            HostError { pbdma: 1, status: 1 << 18, method: 0x10, data: 7 },
        ));
        let error = GraphicsError { status: 0x10, subchannel: 2, class: 0x9039, method: 0x304, data: 1 };
        events.stopped(ChannelStop::new(channel, error));
        events.stopped(ChannelStop::new(channel, Hang { engine: Engine::COPY1, kind: HangKind::Engine }));
    }
    gpu
}

fn restored(back: &Arc<FakeBackend>, state: &Gf100State) -> Result<Gf100Function<FakeBackend>, RestoreError> {
    back.disconnect();
    let config = Gf100Config { clock: Arc::new(ManualClock::default()), ..Gf100Config::default() };
    Gf100Function::from_state(back.clone(), config, state)
}

/// Takes a unit's state through text, and tries states with mistakes.
#[track_caller]
fn unit<S, U, E: std::fmt::Debug>(state: &S, from_state: impl Fn(&S) -> Result<U, E>, taken: impl Fn(&U) -> S)
where
    S: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    assert_eq!(taken(&from_state(&through_text(state)).unwrap()), *state);
    corrupted_states_are_refused_or_taken_as_they_are(state, 400, from_state, taken);
}

#[test]
fn every_unit_is_what_it_was_and_refuses_what_it_cannot_be() {
    let state = in_use().function.state().registers;
    let config = 0x1040;
    let activity = Activity { elapsed: Duration::from_millis(1), busy: [Duration::from_micros(3); 3] };
    unit(&state.pmc, Pmc::from_state, Pmc::state);
    unit(&state.pbus, |state| Ok::<_, ()>(Pbus::from_state(state)), Pbus::state);
    unit(&state.pfb, Pfb::from_state, Pfb::state);
    unit(&state.pfifo, Pfifo::from_state, Pfifo::state);
    unit(&state.ptimer, |state| Ptimer::from_state(state, 7), |timer| timer.state(7));
    unit(&state.pgraph, |state| Pgraph::from_state(state, config, config), Pgraph::state);
    let switch = |state: &_| ContextSwitch::from_state(state, config, config);
    unit(&state.pgraph.controllers, switch, ContextSwitch::state);
    unit(&state.pmu, |state| Pmu::from_state(state, config, &activity), |pmu| pmu.state(&activity));
    unit(&state.pce[0], |state| Pce::from_state(state, 0x10_4000, config), Pce::state);
}

#[test]
fn corrupted_functions_are_refused_or_work() {
    let gpu = in_use();
    let state = gpu.function.state();
    let Gpu { function, back, .. } = gpu;
    drop(function);
    let mut random = Rng::with_seed(3);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..800 {
        let Some(corrupted) = corrupted(&state, &mut random) else { continue };
        let Ok(function) = restored(&back, &corrupted) else {
            refused += 1;
            continue;
        };
        taken += 1;
        assert_eq!(function.state(), corrupted);
        // Whatever a driver does then.
        for _ in 0..64 {
            let offset = u64::from(random.u32(0..0x60_0000) & !3);
            function.read(Region::Bar(0), offset, &mut [0; 4]).unwrap();
            function.write(Region::Bar(0), offset, &random.u32(..).to_le_bytes()).unwrap();
            function.read(Region::Bar(3), offset, &mut [0; 8]).unwrap();
        }
        back.events().non_stall(Engine::Graphics);
        function.reset();
    }
    assert!(refused > 40 && taken > 100, "{refused} refused, {taken} taken");
}

#[test]
fn state_of_another_card_is_refused_by_its_difference() {
    let state = in_use().function.state();
    let refused = |back: &Arc<FakeBackend>, config: Gf100Config, state: &Gf100State| {
        let error = Gf100Function::from_state(back.clone(), config, state).unwrap_err();
        // No sink was connected.
        back.disconnect();
        error.to_string()
    };
    let back = Arc::new(FakeBackend::new(16 << 20));
    assert_eq!(
        refused(&back, Gf100Config::default(), &state),
        "The saved state of GF100.registers is not one that it can be in: VRAM had 0x2000000 bytes, and has 0x1000000"
    );
    let back = Arc::new(FakeBackend::new(32 << 20));
    let other = Gf100Config { device_id: 0x06c1, ..Gf100Config::default() };
    assert!(refused(&back, other, &state).contains("the byte at 0x02 is 0xc0, and this function has 0xc1"));
    let mut changed = state;
    changed.registers.pfifo.channels.pop();
    assert!(refused(&back, Gf100Config::default(), &changed).contains("channels has 127 entries, not 128"));
}

#[test]
fn text_of_another_version_is_refused_by_its_number() {
    let newer = VERSION_1.replacen("\"version\":1", "\"version\":2", 1);
    let error = serde_json::from_str::<Gf100State>(&newer).unwrap_err().to_string();
    assert!(error.contains("the state has version 2, and this program reads 1"), "{error}");
}

#[test]
fn message_that_the_back_sent_is_in_the_state() {
    let gpu = Gpu::new();
    gpu.config_wr(4, &[6, 0]);
    gpu.config_wr(0x6a, &[1, 0]);
    gpu.wr(0x200, 0x100);
    gpu.wr(0x140, 1);
    gpu.wr(0x2140, u32::MAX);
    gpu.wr(0x2628, u32::MAX);
    gpu.back.ends.post(Engine::COPY0);
    let state = gpu.function.state();
    assert!(state.registers.output.unarmed && !gpu.back.ends.any());
    let Gpu { function, back, .. } = gpu;
    drop(function);
    let function = restored(&back, &state).unwrap();
    let sink = Arc::new(Sink::default());
    function.connect_interrupts(Some(sink.clone()));
    let mut events = [0; 4];
    function.read(Region::Bar(0), 0x25a8 + 4 * 4, &mut events).unwrap();
    assert_eq!(sink.seen(), (false, 0), "it was sent already");
    assert_eq!(back.ends.interest(), Some(InterruptInterest::Wake));
}

#[test]
fn back_is_told_where_windows_look_and_what_the_driver_would_notice() {
    let gpu = in_use();
    let state = gpu.function.state();
    let Gpu { function, back, .. } = gpu;
    drop((function, back));
    let other = Arc::new(FakeBackend::new(32 << 20));
    other.follows_windows.store(true, Ordering::SeqCst);
    let function = restored(&other, &state).unwrap();
    assert_eq!((other.calls(), other.ends.interest()), (vec![], Some(InterruptInterest::Wake)));
    assert_eq!(*other.shown.lock().unwrap(), (Some(0x100_0000), Some(0x9000)));
    assert_eq!(function.state().bar3, state.bar3);
}

#[test]
fn state_of_version_1_is_read() {
    let state: Gf100State = serde_json::from_str(VERSION_1).unwrap();
    let back = Arc::new(FakeBackend::new(32 << 20));
    let function = restored(&back, &state).unwrap();
    assert_eq!(serde_json::to_string(&function.state()).unwrap(), VERSION_1.trim_end());
}
