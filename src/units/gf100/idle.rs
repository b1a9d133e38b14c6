//! The PMU's idle counters: how long engines rested or worked, in ticks of the PMU's clock. Power management
//! is what they are made for; they are also the only way to know how long an engine worked.
//!
//! Source: envytools, docs/hw/pm/pdaemon/counter.rst (which engine is which bit, and the two modes), and
//! nouveau's and nvgpu's use of the same registers on GK20A and later. Neither reports the clock's rate: a
//! driver lets one counter count always, and compares. Here a tick is 5 ns.
//!
//! Not handled: a counter that watches several engines at once. It stays 0.

use std::time::Duration;

use gpuvmk_chip::gf100::engines::ENGINES;
use gpuvmk_chip::gf100::regs::pmu::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use serde::{Deserialize, Serialize};

/// How many counters there are.
pub const COUNTERS: usize = NV_PPMU_IDLE_COUNT.count as usize;
const TICK: u128 = 5;
/// NV_PPMU_IDLE_CTRL: counts while what it watches works, or rests.
const WHILE_BUSY: u32 = NV_PPMU_IDLE_CTRL::BUSY.mask();
const WHILE_IDLE: u32 = NV_PPMU_IDLE_CTRL::IDLE.mask();
/// Both: counts always.
const ALWAYS: u32 = WHILE_IDLE | WHILE_BUSY;

/// Activity of engines since a fixed moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Time since then.
    pub elapsed: Duration,
    /// Of that, time in which each of [`ENGINES`] worked.
    pub busy: [Duration; ENGINES.len()],
}

impl Activity {
    /// The clock's time.
    pub fn now(&self) -> u64 {
        u64::try_from(self.elapsed.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A change of a counter's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterChange {
    /// The counter watches other engines.
    Mask(Word),
    /// The counter changes its mode.
    Ctrl(Word),
    /// A write to the counter itself.
    Count(Word),
}

/// A register of these counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleRegister {
    /// The engines that are idle.
    Status,
    /// The engines that a counter watches.
    Mask(u32),
    /// The value of a counter.
    Count(u32),
    /// When it counts.
    Ctrl(u32),
}

impl IdleRegister {
    /// Which one a register is, if it is one.
    pub fn of(reg: Reg) -> Option<Self> {
        if reg == NV_PPMU_IDLE_STATUS {
            return Some(Self::Status);
        }
        (NV_PPMU_IDLE_MASK.index_of(reg).map(Self::Mask))
            .or_else(|| NV_PPMU_IDLE_COUNT.index_of(reg).map(Self::Count))
            .or_else(|| NV_PPMU_IDLE_CTRL.index_of(reg).map(Self::Ctrl))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counter {
    mask: u32,
    mode: u32,
    /// Ticks at the start of counting in this mode.
    from: u64,
    /// Its value before that.
    carried: u64,
}

impl Counter {
    /// Ticks of what it watches since the fixed moment.
    fn ticks(&self, activity: &Activity) -> u64 {
        let ticks = |time: Duration| u64::try_from(time.as_nanos() / TICK).unwrap_or(u64::MAX);
        if self.mode & ALWAYS == ALWAYS {
            return ticks(activity.elapsed);
        }
        let place = ENGINES.iter().position(|ids| ids.idle.mask() == self.mask);
        let Some(busy) = place.and_then(|place| activity.busy.get(place).copied()) else { return 0 };
        match self.mode & ALWAYS {
            WHILE_BUSY => ticks(busy),
            WHILE_IDLE => ticks(activity.elapsed.saturating_sub(busy)),
            _ => 0,
        }
    }

    fn count(&self, activity: &Activity) -> u64 {
        self.carried.wrapping_add(self.ticks(activity).wrapping_sub(self.from))
    }
}

/// The counters of a PMU.
#[derive(Clone, Debug, Default)]
pub struct IdleCounters([Counter; COUNTERS]);

impl IdleCounters {
    fn get(&self, index: u32) -> Counter {
        usize::try_from(index).ok().and_then(|index| self.0.get(index)).copied().unwrap_or_default()
    }

    /// The engines that a counter watches.
    pub fn mask(&self, index: u32) -> u32 {
        self.get(index).mask
    }

    /// When it counts.
    pub fn ctrl(&self, index: u32) -> u32 {
        self.get(index).mode
    }

    /// The value of a counter.
    pub fn count(&self, index: u32, activity: &Activity) -> u32 {
        u32::try_from(self.get(index).count(activity) & u64::from(NV_PPMU_IDLE_COUNT::VALUE.mask()))
            .unwrap_or(0)
    }

    /// Tells a counter something.
    pub fn change(&mut self, index: u32, change: CounterChange, activity: &Activity) {
        let Some(counter) = usize::try_from(index).ok().and_then(|index| self.0.get_mut(index)) else {
            return;
        };
        counter.carried = counter.count(activity);
        match change {
            CounterChange::Mask(word) => counter.mask = word.merge(counter.mask),
            CounterChange::Ctrl(word) => counter.mode = word.merge(counter.mode),
            CounterChange::Count(word) if NV_PPMU_IDLE_COUNT::RESET.is_set(word.merge(0)) => {
                counter.carried = 0;
            }
            CounterChange::Count(_) => {}
        }
        counter.from = counter.ticks(activity);
    }
}

/// State of one of the [`IdleCounters`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleCounterState {
    /// The engines that it watches.
    pub mask: u32,
    /// When it counts.
    pub ctrl: u32,
    /// The value of a counter.
    pub count: u64,
}

impl IdleCounters {
    /// The state to save, at the engines' given activity.
    pub fn state(&self, activity: &Activity) -> [IdleCounterState; COUNTERS] {
        self.0.each_ref().map(|counter| {
            let count = counter.count(activity);
            let Counter { mask, mode, from: _, carried: _ } = *counter;
            IdleCounterState { mask, ctrl: mode, count }
        })
    }

    /// Counters in a saved state, which go on from when the engines have done so much. All values can be
    /// written or counted.
    pub fn from_state(state: &[IdleCounterState; COUNTERS], activity: &Activity) -> Self {
        Self(state.each_ref().map(|state| {
            let IdleCounterState { mask, ctrl, count } = *state;
            let counter = Counter { mask, mode: ctrl, from: 0, carried: count };
            Counter { from: counter.ticks(activity), ..counter }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(elapsed: u64, graphics: u64, copy: u64) -> Activity {
        let us = Duration::from_micros;
        Activity { elapsed: us(elapsed), busy: [us(graphics), us(copy), Duration::ZERO] }
    }

    fn counters(mask: u32, mode: u32) -> IdleCounters {
        let mut counters = IdleCounters::default();
        let start = at(10, 4, 1);
        counters.change(2, CounterChange::Mask(Word::full(mask)), &start);
        counters.change(2, CounterChange::Ctrl(Word::full(mode)), &start);
        counters
    }

    #[test]
    fn counter_counts_work_or_rest_of_its_engine_or_all_time() {
        let end = at(110, 34, 1);
        assert_eq!(counters(1, WHILE_BUSY).count(2, &end), 30 * 200);
        assert_eq!(counters(1, WHILE_IDLE).count(2, &end), 70 * 200);
        assert_eq!(counters(0, ALWAYS).count(2, &end), 100 * 200);
        assert_eq!(counters(1 << 19, WHILE_BUSY).count(2, &end), 0);
        assert_eq!(counters(1, 0).count(2, &end), 0);
    }

    #[test]
    fn what_was_counted_stays_until_it_is_reset() {
        let mut counters = counters(1, WHILE_BUSY);
        let later = at(110, 34, 21);
        counters.change(2, CounterChange::Mask(Word::full(1 << 19)), &later);
        assert_eq!(counters.count(2, &at(210, 134, 31)), 30 * 200 + 10 * 200);

        counters.change(2, CounterChange::Count(Word::full(5)), &later);
        assert_eq!(counters.count(2, &later), 30 * 200);
        counters.change(2, CounterChange::Count(Word::full(1 << 31)), &later);
        assert_eq!((counters.count(2, &later), counters.mask(2), counters.ctrl(2)), (0, 1 << 19, WHILE_BUSY));
    }

    #[test]
    fn counter_wraps_after_31_bits() {
        let counters = counters(0, ALWAYS);
        let long = at(10 + 10_737_419, 4, 1);
        assert_eq!(counters.count(2, &long), 10_737_419 * 200 - (1 << 31));
    }

    #[test]
    fn registers_are_told_apart() {
        assert_eq!(IdleRegister::of(Reg(0x10a500)), Some(IdleRegister::Status));
        assert_eq!(IdleRegister::of(Reg(0x10a514)), Some(IdleRegister::Mask(1)));
        assert_eq!(IdleRegister::of(Reg(0x10a578)), Some(IdleRegister::Count(7)));
        assert_eq!(IdleRegister::of(Reg(0x10a57c)), Some(IdleRegister::Ctrl(7)));
        assert_eq!(IdleRegister::of(Reg(0x10a580)), None);
    }
}
