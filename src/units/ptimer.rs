//! PTIMER: 64 bits of nanoseconds in steps of 32, and an alarm on the low word.
//!
//! Time is the clock's plus an offset that writes to the time registers set. A driver reads high, low, high
//! until the high word is steady. The ratio registers are scratch: the model always counts nanoseconds. The
//! registers lie at the same offsets in all chips here; a chip whose firmware owns the alarm declares only
//! the time.

use gpuvmk_chip::gf100::regs::ptimer::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// The alarm interrupt, in both interrupt registers.
const ALARM: u32 = NV_PTIMER_INTR_0::ALARM.mask();

/// Bits of the low word that count.
const LOW_MASK: u32 = NV_PTIMER_TIME_0::NSEC.mask();

/// Bits of the high word that count.
const HIGH_MASK: u32 = NV_PTIMER_TIME_1::NSEC.mask();

/// PTIMER's state. `now` in all methods is the clock's time in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Ptimer {
    offset: u64,
    /// High word that waits for the low word's write.
    high: u32,
    alarm: u32,
    /// Time of this timer at which the alarm goes off; none when it did or was never set.
    deadline: Option<u64>,
    interrupts: u32,
    interrupt_enable: u32,
}

impl Ptimer {
    /// Reads a register.
    pub fn read(&self, reg: Reg, now: u64) -> u32 {
        let [low, high] = halves(self.time(now));
        match reg {
            NV_PTIMER_INTR_0 => self.interrupts,
            NV_PTIMER_INTR_EN_0 => self.interrupt_enable,
            NV_PTIMER_TIME_0 => low & LOW_MASK,
            NV_PTIMER_TIME_1 => high & HIGH_MASK,
            NV_PTIMER_ALARM_0 => self.alarm,
            _ => 0,
        }
    }

    /// Writes a register; true when the alarm's time may have changed.
    pub fn write(&mut self, reg: Reg, word: Word, now: u64) -> bool {
        match reg {
            NV_PTIMER_INTR_0 => self.interrupts &= !word.bits(),
            NV_PTIMER_INTR_EN_0 => {
                self.interrupt_enable = word.merge(self.interrupt_enable) & ALARM;
                return true;
            }
            NV_PTIMER_TIME_1 => self.high = word.merge(self.high) & HIGH_MASK,
            NV_PTIMER_TIME_0 => {
                let set = u64::from(self.high) << 32 | u64::from(word.bits() & LOW_MASK);
                self.offset = set.wrapping_sub(now);
                self.arm(now);
                return true;
            }
            NV_PTIMER_ALARM_0 => {
                self.alarm = word.merge(self.alarm) & LOW_MASK;
                self.arm(now);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Raises the alarm when its time has come.
    pub fn tick(&mut self, now: u64) {
        if self.deadline.is_some_and(|deadline| self.time(now) >= deadline) {
            self.deadline = None;
            self.interrupts |= ALARM;
        }
    }

    /// True while an alarm waits for its time.
    pub const fn is_armed(&self) -> bool {
        self.deadline.is_some()
    }

    /// Nanoseconds until the alarm, where it is set and enabled.
    pub fn alarm_in(&self, now: u64) -> Option<u64> {
        let armed = self.deadline.filter(|_| self.interrupt_enable & ALARM != 0);
        armed.map(|deadline| deadline.saturating_sub(self.time(now)))
    }

    /// True while an enabled interrupt is pending.
    pub const fn pending(&self) -> bool {
        self.interrupts & self.interrupt_enable != 0
    }

    fn time(&self, now: u64) -> u64 {
        now.wrapping_add(self.offset)
    }

    /// The alarm goes off when the low word reaches its value next.
    fn arm(&mut self, now: u64) {
        let time = self.time(now);
        let [low, _] = halves(time);
        let distance = self.alarm.wrapping_sub(low & LOW_MASK);
        self.deadline = Some((time & !u64::from(!LOW_MASK)).wrapping_add(u64::from(distance)));
    }
}

/// Low and high word.
fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// State of [`Ptimer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PtimerState {
    /// Its time, in nanoseconds.
    pub time: u64,
    /// The value that was written to NV_PTIMER_TIME_1, and waits for NV_PTIMER_TIME_0.
    pub time_1: u32,
    /// NV_PTIMER_ALARM_0.
    pub alarm_0: u32,
    /// Its time at which the alarm goes off, where it is set.
    pub alarm_at: Option<u64>,
    /// NV_PTIMER_INTR_0.
    pub intr_0: u32,
    /// NV_PTIMER_INTR_EN_0.
    pub intr_en_0: u32,
}

impl Ptimer {
    /// The state to save.
    pub fn state(&self, now: u64) -> PtimerState {
        let Self { offset: _, high, alarm, deadline, interrupts, interrupt_enable } = *self;
        PtimerState {
            time: self.time(now),
            time_1: high,
            alarm_0: alarm,
            alarm_at: deadline,
            intr_0: interrupts,
            intr_en_0: interrupt_enable,
        }
    }

    /// A timer in a saved state, that goes on from there.
    ///
    /// # Errors
    /// A register has bits that do not stick, or the alarm goes off at another time than it says.
    pub fn from_state(state: &PtimerState, now: u64) -> Result<Self, StateError> {
        let check = Check("PTIMER");
        let PtimerState { time, time_1, alarm_0, alarm_at, intr_0, intr_en_0 } = *state;
        check.bits("NV_PTIMER_TIME_1", time_1, HIGH_MASK)?;
        check.bits("NV_PTIMER_ALARM_0", alarm_0, LOW_MASK)?;
        check.bits("NV_PTIMER_INTR_0", intr_0, ALARM)?;
        check.bits("NV_PTIMER_INTR_EN_0", intr_en_0, ALARM)?;
        if let Some(at) = alarm_at {
            let [low, _] = halves(at);
            check.that(low == alarm_0, || {
                format!("the alarm is set to {at:#x}, and NV_PTIMER_ALARM_0 is {alarm_0:#x}")
            })?;
        }
        Ok(Self {
            offset: time.wrapping_sub(now),
            high: time_1,
            alarm: alarm_0,
            deadline: alarm_at,
            interrupts: intr_0,
            interrupt_enable: intr_en_0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_on_from_what_was_set_in_steps_of_32() {
        let mut timer = Ptimer::default();
        timer.write(NV_PTIMER_TIME_1, Word::full(5), 1000);
        timer.write(NV_PTIMER_TIME_0, Word::full(64), 1000);
        assert_eq!((timer.read(NV_PTIMER_TIME_1, 1000), timer.read(NV_PTIMER_TIME_0, 1000)), (5, 64));
        assert_eq!(timer.read(NV_PTIMER_TIME_0, 1031), 64);
        assert_eq!(timer.read(NV_PTIMER_TIME_0, 1032), 96);
        assert_eq!(timer.read(NV_PTIMER_TIME_1, 1000 + (1 << 32)), 6);
    }

    #[test]
    fn alarm_goes_off_at_its_time_once_and_is_cleared_by_a_one() {
        let mut timer = Ptimer::default();
        timer.write(NV_PTIMER_ALARM_0, Word::full(0x1000), 0);
        timer.write(NV_PTIMER_INTR_EN_0, Word::full(1), 0);
        timer.tick(0xfff);
        assert!(!timer.pending());
        assert_eq!(timer.alarm_in(0xfff), Some(1));
        timer.tick(0x1000);
        assert!(timer.pending());
        timer.write(NV_PTIMER_INTR_0, Word::full(1), 0x1001);
        timer.tick(0x2000);
        assert!(!timer.pending());
        assert_eq!(timer.alarm_in(0x2000), None);
    }

    #[test]
    fn alarm_value_below_the_low_word_means_after_the_wrap() {
        let mut timer = Ptimer::default();
        timer.write(NV_PTIMER_INTR_EN_0, Word::full(1), 0);
        timer.write(NV_PTIMER_ALARM_0, Word::full(0), 0x20);
        assert_eq!(timer.alarm_in(0x20), Some((1 << 32) - 0x20));
    }
}
