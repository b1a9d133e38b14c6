//! A function that is saved and restored answers as one that was left alone.

use fastrand::Rng;
use gpuvmk_backend::testing::{BackCall, FakeGspBack};
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, Hang, HangKind, HostError, MmuFault, StopCause};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};
use gpuvmk_mmio_trap::aperture::gmmu::GmmuRoot;
use gpuvmk_saved_state::testing::{corrupted, corrupted_states_are_refused_or_taken_as_they_are};
use gpuvmk_trace::Entry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::driver::{CHANNEL, Driver};
use super::*;
use crate::RestoreError;
use crate::gsp_face::GspFaceState;
use crate::gsp_face::boot::fsp::Fsp;
use crate::gsp_face::falcon::GspFalcon;
use crate::gsp_face::hal::{self, Boot};
use crate::gsp_face::identity_page::IdentityPage;
use crate::gsp_face::invalidate::MmuInvalidate;
use crate::gsp_face::unreported_stops::UnreportedStops;
use crate::gsp_face::vfn::Vfn;
use crate::played;
use crate::ptimer::Ptimer;
use gpuvmk_backend::InterruptInterest;

/// The state that version 1 wrote of [`in_use`].
const VERSION_1: &str = include_str!("state-1.json");

const USERD: u64 = 0x10_0000;

/// Something that happens behind the registers.
fn event(gpu: &Gpu, random: &mut Rng) {
    let events = gpu.back.events();
    let channel = random.u16(0..4);
    let engine = *random.choice(&[Engine::Graphics, Engine::COPY0, Engine::COPY1]).unwrap();
    match random.u8(0..5) {
        0 => events.non_stall(engine),
        1 => events.stopped(ChannelStop::new(
            GuestChannel(channel),
            MmuFault {
                unit: FaultUnit::Engine(engine),
                address: GpuVa(random.u64(0..1 << 40)),
                access: AccessKind::Write,
                reason: FaultReason::PageNotPresent,
            },
        )),
        2 => events.stopped(ChannelStop::new(
            GuestChannel(channel),
            HostError { pbdma: 0, status: 1, method: 0x10, data: 7 },
        )),
        3 => events.stopped(ChannelStop::new(GuestChannel(channel), Hang { engine, kind: HangKind::Engine })),
        // Work that ends while its driver looks away is kept; that of others is told.
        _ if matches!(gpu.back.ends.interest(), None | Some(InterruptInterest::Masked)) => {
            gpu.back.ends.keep(engine);
        }
        _ => events.non_stall(engine),
    }
}

/// All that shows outside after an entry of a trace.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    read: Vec<u8>,
    calls: Vec<BackCall>,
    seen: (bool, u64),
}

/// Plays the probe of a chip; the function is replaced where `restore` says.
fn probe(hal: &'static Hal, entries: &[Entry], vram: u64, restore: impl Fn(usize) -> bool) -> Vec<Shown> {
    let mut gpu = Gpu::of(hal, vram);
    let sink = Arc::new(played::Sink::default());
    gpu.function.connect_interrupts(Some(sink.clone()));
    let mut random = Rng::with_seed(7);
    let step = |(index, entry)| {
        if random.u8(0..16) == 0 {
            event(&gpu, &mut random);
        }
        if restore(index) {
            gpu = gpu.restored();
            gpu.function.connect_interrupts(Some(sink.clone()));
        }
        let read = played::play(&gpu.function, entry);
        gpu.clock.advance(1_000);
        Shown { read, calls: gpu.back.calls(), seen: sink.seen() }
    };
    entries.iter().enumerate().map(step).collect()
}

#[test]
fn restored_in_the_middle_of_a_probe_of_a_chip_of_each_family() {
    for rows in hal::ALL.chunk_by(|one, other| one.gsp.chip.family == other.gsp.chip.family) {
        let hal = rows[0];
        let (entries, vram) = played::probe_of(hal.name);
        let alone = probe(hal, &entries, vram, |_| false);
        let mut random = Rng::with_seed(entries.len() as u64);
        let at_random: Vec<_> = (0..20).map(|_| random.usize(0..entries.len())).collect();
        let replaced = probe(hal, &entries, vram, |index| index % 499 == 0 || at_random.contains(&index));
        for (index, (replaced, alone)) in replaced.iter().zip(&alone).enumerate() {
            assert_eq!(replaced, alone, "{}, entry {index}: {:?}", hal.name, entries[index]);
        }
        assert!(alone.iter().any(|shown| shown.seen.1 > 0), "{}: no message was sent", hal.name);
    }
}

/// What a driver does with GSP, in pieces between which the function may be replaced.
const SESSION: [fn(&mut Driver<'_>); 12] = [
    |driver| driver.open(),
    |driver| driver.channel(3, USERD),
    |driver| {
        driver.gpu.back.put_vram(USERD + 0x8c, &5u32.to_le_bytes());
        driver.gpu.wr(0xbb_0090, 1 << 16 | 3);
    },
    |driver| driver.channel(9, USERD + 0x200),
    |driver| driver.gpu.wr(0xbb_0090, 1 << 16 | 9),
    |driver| driver.push(72, &[0; 928]),
    |driver| {
        driver.gpu.back.events().stopped(ChannelStop::new(
            GuestChannel(0),
            Hang { engine: Engine::COPY1, kind: HangKind::Engine },
        ));
    },
    |driver| driver.free(CHANNEL + 3),
    |driver| driver.unload(true),
    |driver| assert_eq!(driver.boot(0), 0),
    |driver| driver.gpu.wr(0xbb_0090, 1 << 16 | 9),
    |driver| driver.unload(false),
];

/// Plays the session. Returns the back's calls, GSP's messages and the registers after each piece.
fn session(restores: bool) -> Vec<impl std::fmt::Debug + PartialEq> {
    let gpus: Vec<_> = SESSION.iter().map(|_| std::sync::OnceLock::new()).collect();
    let first = Gpu::new();
    let sink = first.listen(true, &[0, 1, 2, 3]);
    let mut gpu = &first;
    let mut driver = Driver::booted(gpu);
    let mut shown = Vec::new();
    for (piece, place) in SESSION.iter().zip(&gpus) {
        if restores {
            gpu = place.get_or_init(|| gpu.restored());
            gpu.function.connect_interrupts(Some(sink.clone()));
            driver = driver.moved(gpu);
        }
        piece(&mut driver);
        let messages: Vec<_> = std::iter::from_fn(|| driver.receive()).collect();
        let registers = [0xb8_1600, 0xb8_100c, 0x11_0008, 0x11_0040, 0x11_8388].map(|offset| gpu.rd(offset));
        shown.push((gpu.back.calls(), messages, registers, sink.taken(), gpu.function.gsp_counters()));
    }
    shown
}

#[test]
fn restored_between_all_that_a_driver_asks_of_gsp() {
    assert_eq!(session(true), session(false));
}

/// A function of which every unit is in use.
fn in_use() -> Gpu {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, USERD);
    driver.channel(9, USERD + 0x200);
    driver.set_bar2(0x10_0002);
    let sink = gpu.listen(true, &[1, 3]);
    gpu.wr(0x10_fd40, 0x20);
    gpu.wr(0x9400, 0x1a07_debf);
    gpu.wr(0xb8_30a0, 0x1230);
    gpu.wr(0x40, 7);
    gpu.wr(0x60_0000, 5);
    gpu.clock.advance(1_000_000);
    gpu.back.events().non_stall(Engine::COPY1);
    gpu.back
        .events()
        .stopped(ChannelStop::new(GuestChannel(0), Hang { engine: Engine::COPY1, kind: HangKind::Acquire }));
    assert_eq!(sink.taken(), [Signal::Message]);
    gpu
}

fn restored(back: &Arc<FakeGspBack>, state: &GspFaceState) -> Result<GspFunction<FakeGspBack>, RestoreError> {
    back.disconnect();
    let config = GspFaceConfig { clock: Arc::new(ManualClock::default()), ..GspFaceConfig::of(&GH100) };
    GspFunction::from_state(back.clone(), config, state)
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
    let GspFaceState { registers, identity, .. } = in_use().function.state();
    unit(&registers.gsp, |state| GspFalcon::from_state(state, &GH100.processor), GspFalcon::state);
    let Boot::Fsp(boot) = GH100.boot else { panic!("FSP boots a GH100") };
    let fsp = registers.fsp.as_ref().unwrap();
    unit(fsp, |state| Fsp::from_state(state, boot), Fsp::state);
    unit(&registers.vfn, |state| Vfn::from_state(state, &GH100.interrupts), Vfn::state);
    unit(
        &registers.invalidate,
        |state| MmuInvalidate::from_state(state, &GH100.invalidation),
        MmuInvalidate::state,
    );
    unit(&registers.ptimer, |state| Ptimer::from_state(state, 7), |timer| timer.state(7));
    unit(
        &identity,
        |state| IdentityPage::from_state(state.as_ref(), (GH100.registers)()),
        IdentityPage::state,
    );
    let mut stops = UnreportedStops::default();
    for channel in 0..4 {
        stops.push(ChannelStop::new(GuestChannel(channel), StopCause::Manager(31)));
    }
    unit(&stops.state(), UnreportedStops::from_state, UnreportedStops::state);
}

#[test]
fn corrupted_functions_are_refused_or_work() {
    let gpu = in_use();
    let state = gpu.function.state();
    let Gpu { function, back, .. } = gpu;
    drop(function);
    let mut random = Rng::with_seed(3);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..1_500 {
        let Some(corrupted) = corrupted(&state, &mut random) else { continue };
        let Ok(function) = restored(&back, &corrupted) else {
            refused += 1;
            continue;
        };
        taken += 1;
        assert_eq!(function.state(), corrupted);
        // Whatever a driver does then.
        for offset in [0x11_0c00, 0xbb_0090, 0xb8_1608, 0x8f_2c00, 0x8f_2ac4, 0xb8_30b0, 0x10_fd40, 0x70_0000]
        {
            function.write(Region::Bar(0), offset, &random.u32(..).to_le_bytes()).unwrap();
            function.read(Region::Bar(0), offset, &mut [0; 4]).unwrap();
        }
        let offset = u64::from(random.u32(0..0x100_0000) & !7);
        function.read(Region::Bar(1), offset, &mut [0; 8]).unwrap();
        function.read(Region::Bar(3), offset, &mut [0; 8]).unwrap();
        back.events().non_stall(Engine::Graphics);
        function.reset();
    }
    assert!(refused > 40 && taken > 100, "{refused} refused, {taken} taken");
}

#[test]
fn windows_go_through_tables_that_gsp_gave_them() {
    let state = in_use().function.state();
    let back = Arc::new(back(VRAM));
    let other = gpuvmk_chip::PhysicalAddress { aperture: gpuvmk_chip::Aperture::Vram, address: 0x1000 };
    let bar1 = GspFaceState { bar1: GmmuRoot::Root(other), ..state.clone() };
    assert!(restored(&back, &bar1).unwrap_err().to_string().contains("GH100.windows"));
    for tables in [GmmuRoot::Root(other), GmmuRoot::RootEntry(1)] {
        let bar2 = GspFaceState { bar2: tables, ..state.clone() };
        assert!(restored(&back, &bar2).unwrap_err().to_string().contains("BAR2 goes through"));
    }
}

#[test]
fn channel_that_stopped_while_the_state_was_taken_is_told_by_the_new_function() {
    let gpu = in_use();
    let mut state = gpu.function.state();
    state.stops = UnreportedStops::from_state(&state.stops)
        .map(|mut stops| {
            stops.push(ChannelStop::new(GuestChannel(1), StopCause::Manager(31)));
            stops.state()
        })
        .unwrap();
    let told = state.gsp.counters.channels_stopped;
    let Gpu { function, back, .. } = gpu;
    drop(function);
    let function = restored(&back, &state).unwrap();
    assert_eq!(function.gsp_counters().channels_stopped, told + 1);
    assert!(function.state().stops.waiting.is_empty());
    assert_eq!(back.ends.interest(), Some(InterruptInterest::Wake));
}

#[test]
fn state_of_version_1_is_read() {
    let state: GspFaceState = serde_json::from_str(VERSION_1).unwrap();
    let back = Arc::new(back(VRAM));
    let function = restored(&back, &state).unwrap();
    // What version 1 had no names for is as it was then.
    let GspFaceState { chip, registers, gsp, .. } = function.state();
    assert_eq!((chip.as_str(), &registers.falcons, gsp.non_wpr_heap), ("GH100", &None, 0));
    let mut written = serde_json::to_value(function.state()).unwrap();
    let whole = written.as_object_mut().unwrap();
    whole.insert("version".to_owned(), 1.into());
    whole.remove("chip");
    assert_eq!(whole.remove("display"), Some(serde_json::Value::Null));
    whole["registers"].as_object_mut().unwrap().remove("falcons");
    whole["gsp"].as_object_mut().unwrap().remove("non_wpr_heap");
    for channel in whole["gsp"]["channels"]["channels"].as_array_mut().unwrap() {
        assert_eq!(channel.as_object_mut().unwrap().remove("context"), Some(serde_json::Value::Null));
    }
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(VERSION_1).unwrap());
    assert!(back.objects().is_some_and(|usage| usage.used > 3));
}
