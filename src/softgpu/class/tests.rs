//! Classes without a GPU: their methods on plain memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::copy::Copy;
use crate::Preemption;
use crate::clock::Clock;
use crate::engine::control::{Control, Place};
use crate::engine::crew::Crew;
use crate::engine::model::{Effects, Model, Progress, Run};
use crate::engine::not_executed::NotExecuted;
use crate::mmu::channel_memory::{ChannelMemory, Report};
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gf100::methods::pcopy;
use gpuvmk_chip::reduction::{Operand, Reduction};
use gpuvmk_chip::stream::Method;

/// Bytes that are copied: several steps of work.
const SIZE: usize = 1 << 20;

/// Bytes of a line.
const LINE: usize = 1 << 15;

/// Where the copy goes, and where its report goes.
const TARGET: usize = 2 << 20;
const REPORT: usize = 4 << 20;

/// Memory from address 0 on, that faults nowhere.
#[derive(Debug)]
struct Plain(Mutex<Vec<u8>>);

impl Plain {
    fn new() -> Self {
        let pattern = (0..SIZE).map(|index| (index % 251) as u8);
        Self(Mutex::new(pattern.chain(std::iter::repeat_n(0, REPORT + 16 - SIZE)).collect()))
    }

    fn is_copied(&self) -> bool {
        let bytes = self.0.lock().unwrap();
        bytes[TARGET..TARGET + SIZE] == bytes[..SIZE]
    }

    fn report(&self) -> u32 {
        u32::from_le_bytes(*self.0.lock().unwrap()[REPORT..].first_chunk().unwrap())
    }
}

impl ChannelMemory for Plain {
    fn read(&self, va: u64, data: &mut [u8]) -> Result<(), MmuFault> {
        data.copy_from_slice(&self.0.lock().unwrap()[va as usize..][..data.len()]);
        Ok(())
    }

    fn write(&self, va: u64, data: &[u8]) -> Result<(), MmuFault> {
        self.0.lock().unwrap()[va as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, size: u64) -> Result<(), MmuFault> {
        self.0.lock().unwrap().copy_within(from as usize..(from + size) as usize, to as usize);
        Ok(())
    }

    fn clear(&self, va: u64, size: u64) -> Result<(), MmuFault> {
        self.write(va, &vec![0; size as usize])
    }

    fn prepare_to_fill(&self, _va: u64, _size: u64) {}

    fn write_report(&self, va: u64, value: u64, report: Report) -> Result<(), MmuFault> {
        assert_eq!(report, Report::Word);
        self.write(va, &(value as u32).to_le_bytes())
    }

    fn write_time(&self, va: u64) -> Result<(), MmuFault> {
        self.write(va + 8, &[0; 8])
    }

    fn update_u32(&self, _: u64, _: &mut dyn FnMut(u32) -> Option<u32>) -> Result<u32, MmuFault> {
        unreachable!("no class of this chip has atomics")
    }

    fn update_u64(&self, _: u64, _: &mut dyn FnMut(u64) -> Option<u64>) -> Result<u64, MmuFault> {
        unreachable!("no class of this chip has atomics")
    }

    fn reduce(&self, _: u64, _: Reduction, _: Operand, _: bool, _: u64) -> Result<(), MmuFault> {
        unreachable!("no class of this chip reduces")
    }
}

/// A channel that may have to leave, and an engine that may be being reset.
#[derive(Default)]
struct Wishes {
    attention: AtomicBool,
    abort: AtomicBool,
    not_executed: NotExecuted,
    crew: Crew,
}

impl Wishes {
    fn run<'a>(&'a self, memory: &'a Plain, preemption: Preemption) -> Run<'a> {
        let slice_end = Instant::now() + Duration::from_secs(3600);
        let (attention, abort, place) = (&self.attention, &self.abort, Place::Engine);
        let control = Control { attention, abort, slice_end, preemption, place };
        let Self { crew, not_executed, .. } = self;
        Run { memory, clock: Clock::start(), control, crew, not_executed }
    }
}

/// Gives an engine all methods of the copy, and the one that starts it.
fn start(engine: &mut Copy, run: &Run<'_>, effects: &mut Effects) -> Progress {
    let exec = pcopy::EXEC::SRC_LINEAR.mask() | pcopy::EXEC::DST_LINEAR.mask();
    let methods = [
        (pcopy::SRC_ADDRESS_LOW, 0),
        (pcopy::DST_ADDRESS_LOW, TARGET as u32),
        (pcopy::SRC_PITCH, LINE as u32),
        (pcopy::DST_PITCH, LINE as u32),
        (pcopy::X_COUNT, LINE as u32),
        (pcopy::Y_COUNT, (SIZE / LINE) as u32),
        (pcopy::QUERY_ADDRESS_LOW, REPORT as u32),
        (pcopy::QUERY_COUNTER, 7),
        (pcopy::EXEC, exec | pcopy::EXEC::QUERY.mask() | pcopy::EXEC::QUERY_SHORT.mask()),
    ];
    let method = |(method, data)| Method { subchannel: 0, method, data };
    let [.., last] = methods.map(method).map(|method| engine.method(run, method, effects).unwrap());
    last
}

#[test]
fn copy_that_pauses_goes_on_in_another_engine_from_its_saved_state() {
    let (memory, wishes, mut effects) = (Plain::new(), Wishes::default(), Effects::default());
    wishes.attention.store(true, Ordering::Relaxed);
    let run = wishes.run(&memory, Preemption::Anywhere);

    let mut engine = Copy::default();
    let mut progress = start(&mut engine, &run, &mut effects);
    assert!(!memory.is_copied());
    let mut pauses = 0;
    while progress == Progress::Paused {
        assert!(memory.report() == 0 && !effects.released, "the last bytes come before the report");
        pauses += 1;
        let saved = engine.save();
        engine = Copy::default();
        engine.load(&saved);
        progress = engine.resume(&run, &mut effects).unwrap();
    }

    assert!(pauses > 2, "{pauses}");
    assert!(memory.is_copied() && memory.report() == 7 && effects.released);
}

#[test]
fn whole_methods_pause_for_a_reset_only() {
    let (memory, wishes, mut effects) = (Plain::new(), Wishes::default(), Effects::default());
    wishes.attention.store(true, Ordering::Relaxed);
    let run = wishes.run(&memory, Preemption::Methods);
    assert_eq!(start(&mut Copy::default(), &run, &mut effects), Progress::Done);
    assert!(memory.is_copied());

    let memory = Plain::new();
    wishes.abort.store(true, Ordering::Relaxed);
    let run = wishes.run(&memory, Preemption::Methods);
    assert_eq!(start(&mut Copy::default(), &run, &mut effects), Progress::Paused);
    assert!(!memory.is_copied());
}

#[test]
fn what_takes_long_pauses_on_the_host_units_thread_and_the_engine_goes_on() {
    let asked_first = OnceLock::from(Instant::now().checked_sub(Duration::from_millis(1)).unwrap());
    for preemption in [Preemption::Anywhere, Preemption::Methods] {
        let (memory, wishes, mut effects) = (Plain::new(), Wishes::default(), Effects::default());
        let mut run = wishes.run(&memory, preemption);
        run.control.place = Place::HostUnit(&asked_first);
        let mut engine = Copy::default();
        assert_eq!(start(&mut engine, &run, &mut effects), Progress::Paused);
        assert!(!memory.is_copied() && !effects.released);

        let run = wishes.run(&memory, preemption);
        assert_eq!(engine.resume(&run, &mut effects), Ok(Progress::Done));
        assert!(memory.is_copied() && std::mem::take(&mut effects).released);
        assert_eq!(engine.resume(&run, &mut effects), Ok(Progress::Done), "nothing is left");
        assert_eq!(effects, Effects::default());
    }
}
