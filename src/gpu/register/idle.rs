//! How long engines worked, by the PMU's idle counters.
//!
//! Source: envytools, docs/hw/pm/pdaemon/counter.rst. Counters have 31 bits and count ticks of a clock of
//! unknown rate. One of them counts always, and its rate is measured at the start.

use std::time::{Duration, Instant};

use super::bus::Bus;
use crate::GpuError;
use gpuvmk_chip::Engine;
use gpuvmk_chip::gf100::engines::ENGINES;
use gpuvmk_chip::gf100::regs::pmu::{NV_PPMU_IDLE_COUNT, NV_PPMU_IDLE_CTRL, NV_PPMU_IDLE_MASK};

/// Mask of a counter's value.
const VALUE: u32 = NV_PPMU_IDLE_COUNT::VALUE.mask();
/// A counter counts while what it watches works.
const WHILE_BUSY: u32 = NV_PPMU_IDLE_CTRL::BUSY.mask();
/// It counts always.
const ALWAYS: u32 = WHILE_BUSY | NV_PPMU_IDLE_CTRL::IDLE.mask();

/// The counter of all time: the first after those of the engines.
const CLOCK: u32 = 3;

/// The clock is watched for so many times as long as a reading of it takes: its rate is right within 0.2 %
/// then.
const READINGS: u32 = 1000;
/// It is watched for so long at least, because the second reading may take [`BRIEF`] when the first did not.
const SHORTEST_WATCH: Duration = Duration::from_millis(5);
/// And at most so long: where readings take more than 50 us the rate is worse than that.
const LONGEST_WATCH: Duration = Duration::from_millis(50);
/// Counters that were not read for longer may have wrapped (at 1 GHz after 2.1 s).
const LONGEST: Duration = Duration::from_secs(1);
/// Reading the clock took no longer than this, or it is read again.
const BRIEF: Duration = Duration::from_micros(5);
const ATTEMPTS: usize = 100;

/// The PMU's idle counters.
#[derive(Clone, Debug)]
pub(super) struct IdleCounters {
    /// Ticks in a second.
    rate: f64,
    read_at: Instant,
    counts: [u32; ENGINES.len()],
    busy: [Duration; ENGINES.len()],
}

impl IdleCounters {
    /// Starts the counters, and measures their clock.
    pub(super) fn start(bus: &Bus) -> Result<Self, GpuError> {
        let watched = ENGINES.iter().map(|ids| (ids.idle.mask(), WHILE_BUSY)).chain([(0, ALWAYS)]);
        for (counter, (mask, mode)) in (0..).zip(watched) {
            bus.write(NV_PPMU_IDLE_MASK.at(counter), mask)?;
            bus.write(NV_PPMU_IDLE_CTRL.at(counter), mode)?;
            bus.write(NV_PPMU_IDLE_COUNT.at(counter), NV_PPMU_IDLE_COUNT::RESET.mask())?;
        }
        let (from, took, first) = clock(bus)?;
        std::thread::sleep(took.saturating_mul(READINGS).clamp(SHORTEST_WATCH, LONGEST_WATCH));
        let (to, _, last) = clock(bus)?;
        let ticks = last.wrapping_sub(first) & VALUE;
        if ticks == 0 {
            return Err(GpuError::Invalid("The PMU's idle counters do not count".to_owned()));
        }
        let rate = f64::from(ticks) / to.saturating_duration_since(from).as_secs_f64();
        let zero = [Duration::ZERO; ENGINES.len()];
        Ok(Self { rate, read_at: to, counts: [0; ENGINES.len()], busy: zero })
    }

    /// Busy time of each engine. Time for which counters were not read often enough counts as idle.
    pub(super) fn read(&mut self, bus: &Bus) -> Vec<(Engine, Duration)> {
        let now = Instant::now();
        let known = now.saturating_duration_since(self.read_at) < LONGEST;
        self.read_at = now;
        let mut times = Vec::with_capacity(ENGINES.len());
        for ((ids, counter), (count, busy)) in
            ENGINES.iter().zip(0..).zip(self.counts.iter_mut().zip(&mut self.busy))
        {
            // A GPU that is lost counts nothing.
            let Ok(new) = bus.read(NV_PPMU_IDLE_COUNT.at(counter)) else { continue };
            let ticks = new.wrapping_sub(std::mem::replace(count, new)) & VALUE;
            if known {
                *busy = busy.saturating_add(Duration::from_secs_f64(f64::from(ticks) / self.rate));
            }
            times.push((ids.engine, *busy));
        }
        times
    }
}

/// When the clock was read, how long that took, and its value.
fn clock(bus: &Bus) -> Result<(Instant, Duration, u32), GpuError> {
    let mut best: Option<(Instant, Duration, u32)> = None;
    for _ in 0..ATTEMPTS {
        let before = Instant::now();
        let ticks = bus.read(NV_PPMU_IDLE_COUNT.at(CLOCK))?;
        let took = before.elapsed();
        if best.is_none_or(|(_, least, _)| took < least) {
            best = Some((before, took, ticks));
        }
        if took <= BRIEF {
            break;
        }
    }
    best.ok_or(GpuError::Lost)
}
