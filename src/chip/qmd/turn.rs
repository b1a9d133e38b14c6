//! When a block that was named runs.
//!
//! A driver gives a block a counter and says whether it is held until it is scheduled. The distributor has
//! both for itself in the block (HW_ONLY_*): it copies the driver's where it is told to, counts and releases
//! its own, and leaves the driver's as they are. So a block that was written once serves many times.

use super::block::Qmd;
use super::layout::{Bits, TurnFields};

/// What keeps a block from running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// DEPENDENCE_COUNTER: how often it must be counted down.
    pub counter: u32,
    /// REQUIRE_SCHEDULING_PCAS: it waits until it is scheduled, or counted down to 0.
    pub held: bool,
}

/// What is done with a block that is named: by a method (SEND_SIGNALING_PCAS2_B), or by a block that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// COPY_SCHEDULE: counter and hold begin as the driver wrote them. It runs if they let it.
    Copy,
    /// SCHEDULE: it is held no longer. It runs if its counter is 0.
    Schedule,
    /// DECREMENT_DEPENDENCE: it runs once its counter is 0.
    CountDown,
    /// INCREMENT_DEPENDENCE: it waits for one more.
    CountUp,
}

impl Turn {
    /// Nothing keeps it.
    pub const fn has_come(self) -> bool {
        self.counter == 0 && !self.held
    }

    /// What keeps a block for which this is kept, and for which the driver wrote `asked`, after an act.
    #[must_use]
    pub fn after(self, act: Act, asked: Self) -> Self {
        let Self { counter, held } = self;
        match act {
            Act::Copy => asked,
            Act::Schedule => Self { counter, held: false },
            Act::CountDown => {
                let counter = counter.saturating_sub(1);
                Self { counter, held: held && counter > 0 }
            }
            Act::CountUp => Self { counter: counter.saturating_add(1), held },
        }
    }
}

impl Qmd {
    fn turn(&self, counter: Bits, held: Bits) -> Turn {
        Turn { counter: self.get_u32(counter), held: self.is_set(held) }
    }

    /// What the driver wrote.
    pub fn asked(&self, fields: &TurnFields) -> Turn {
        self.turn(fields.counter, fields.held)
    }

    /// What the distributor keeps.
    pub fn kept(&self, fields: &TurnFields) -> Turn {
        self.turn(fields.counter_kept, fields.held_kept)
    }

    /// The same block, for which the distributor keeps this. A counter beyond its field is cut.
    #[must_use]
    pub fn keeping(self, fields: &TurnFields, turn: Turn) -> Self {
        self.with(fields.counter_kept, turn.counter.into()).with(fields.held_kept, turn.held.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::ALL;
    use super::*;

    fn turn(counter: u32, held: bool) -> Turn {
        Turn { counter, held }
    }

    #[test]
    fn a_copy_begins_with_what_the_driver_wrote() {
        for asked in [turn(0, false), turn(2, false), turn(0, true), turn(2, true)] {
            let kept = turn(7, true).after(Act::Copy, asked);
            assert_eq!((kept, kept.has_come()), (asked, asked == turn(0, false)));
        }
    }

    #[test]
    fn what_is_scheduled_is_held_no_longer_but_waits_for_its_counter() {
        let asked = turn(2, true);
        assert!(turn(0, true).after(Act::Schedule, asked).has_come());
        assert_eq!(turn(1, true).after(Act::Schedule, asked), turn(1, false));
    }

    #[test]
    fn counting_down_releases_at_0_alone() {
        let asked = turn(2, true);
        let once = asked.after(Act::CountDown, asked);
        assert_eq!((once, once.has_come()), (turn(1, true), false));
        assert!(once.after(Act::CountDown, asked).has_come());
        assert!(once.after(Act::CountUp, asked).after(Act::CountDown, asked) == once);
    }

    #[test]
    fn the_drivers_fields_stay_as_they_are() {
        let mut versions = 0;
        for layout in ALL {
            let Some(fields) = &layout.turn else { continue };
            versions += 1;
            let qmd = Qmd::new(layout).with(fields.counter, 3).with(fields.held, 1);
            assert_eq!((qmd.asked(fields), qmd.kept(fields)), (turn(3, true), turn(0, false)));
            let qmd = qmd.keeping(fields, turn(2, true));
            assert_eq!((qmd.asked(fields), qmd.kept(fields)), (turn(3, true), turn(2, true)));
            assert_eq!(qmd.layout(&[layout]), Some(layout), "its version is what it was");
        }
        assert_eq!(versions, 5, "all from 2.4 on");
    }
}
