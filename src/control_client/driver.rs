//! What a VM's device backend counts of the guest's driver, at the function's registers and in firmware.

use gpuvmk_counters::counters;
use serde::{Deserialize, Serialize};

counters! {
    /// What a driver did that is of note to operators, by its backend's report, since the backend began.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct DriverCounters {
        /// At registers and windows.
        pub face: FaceCounters = (part "face"),
        /// In firmware; all 0 for chips whose driver asks none.
        pub gsp: GspCounters = (part "gsp"),
        /// Of people who look at its monitor; all 0 where nobody can.
        pub looks: LookCounters = (part "looks"),
    }
}

impl DriverCounters {
    /// How many counts there are.
    pub const NUMBERS: usize = FaceCounters::NUMBERS + GspCounters::NUMBERS + LookCounters::NUMBERS;

    /// All counts, those of [`FaceCounters`] first.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.face.numbers().into_iter().chain(self.gsp.numbers()).chain(self.looks.numbers())
    }

    /// What [`Self::numbers`] said.
    pub fn from_numbers(numbers: [u64; Self::NUMBERS]) -> Self {
        let mut all = numbers.into_iter();
        let mut next = |_| all.next().unwrap_or(0);
        let face = FaceCounters::from_numbers(std::array::from_fn(&mut next));
        let gsp = GspCounters::from_numbers(std::array::from_fn(&mut next));
        Self { face, gsp, looks: LookCounters::from_numbers(std::array::from_fn(next)) }
    }
}

counters! {
    /// Accesses of a driver to its function's registers and windows that are of note.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct FaceCounters sent as numbers {
        /// Reads of registers that no table lists.
        pub unlisted_reads: u64 = (counter Number "unlisted_accesses" { "access": "read" }
            "Accesses to registers that no table lists"),
        /// Writes to registers that no table lists.
        pub unlisted_writes: u64 = (counter Number "unlisted_accesses" { "access": "write" }),
        /// Writes to registers that drivers may not write.
        pub refused: u64 = (counter Number "refused_writes"),
        /// Accesses by the CPU through BAR1, BAR2 and BAR3 that had no translation.
        pub window_faults: u64 = (counter Number "window_faults"),
        /// Register writes by contexts' patch lists whose consequences were dropped.
        ///
        /// GF100 only.
        pub dropped_patches: u64 = (counter Number "dropped_patches"),
        /// Steps of GSP's boot that were refused, by FSP, by falcons or by firmware on them.
        ///
        /// Chips with GSP only.
        pub boot_errors: u64 = (counter Number "boot_errors"),
        /// Doorbells that named no channel.
        ///
        /// Chips with GSP only.
        pub bad_doorbells: u64 = (counter Number "bad_doorbells"),
        /// Stopped channels that the driver was not told of, for lack of room.
        ///
        /// Chips with GSP only.
        pub dropped_stops: u64 = (counter Number "dropped_stops"),
        /// Channels of the display engine that were stopped, because their push buffer had no meaning.
        ///
        /// Functions with a head only.
        pub display_stops: u64 = (counter Number "display_stops"),
        /// Memory that was named to the display engine and is not there, or is too small.
        ///
        /// Functions with a head only.
        pub display_refused: u64 = (counter Number "display_refused"),
        /// Heads of the function.
        pub heads: u64 = (gauge Number "heads"),
        /// The size that the monitor prefers, in pixels; 0 while none is plugged in.
        ///
        /// Functions with a head only.
        pub monitor_width: u64 = (gauge Number "monitor" { "side": "width" }
            "The size that the monitor of a function with a head prefers, in pixels; 0 while none is plugged in"),
        /// Its height.
        ///
        /// Functions with a head only.
        pub monitor_height: u64 = (gauge Number "monitor" { "side": "height" }),
    }
}

counters! {
    /// People who look at a VM's monitor, and what that cost.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct LookCounters sent as numbers {
        /// Viewers that look now.
        pub viewers: u64 = (gauge Number "viewers"),
        /// Viewers that came.
        pub came: u64 = (counter Number "viewers_let_in"),
        /// Viewers that were sent away because there were enough.
        pub too_many: u64 = (counter Number "viewers_sent_away" { "reason": "too_many" }
            "Viewers that were not let in, or let go"),
        /// Viewers that could not be understood.
        pub faults: u64 = (counter Number "viewers_sent_away" { "reason": "fault" }),
        /// Viewers that took too long to say what they want, or to take what they get.
        pub too_slow: u64 = (counter Number "viewers_sent_away" { "reason": "slow" }),
        /// Bytes that viewers got.
        pub bytes: u64 = (counter Bytes "viewers_sent"),
        /// Pictures of the monitor that were composed; none while nobody looks.
        pub composed: u64 = (counter Number "pictures" { "state": "composed" }
            "Pictures of a monitor that somebody looks at"),
        /// Those that differed from the one before.
        pub changed: u64 = (counter Number "pictures" { "state": "changed" }),
        /// Pieces of surfaces, cursors and tables that could not be read.
        pub unread: u64 = (counter Number "pictures_unread"),
        /// Pictures that were larger than a frame may be.
        pub too_large: u64 = (counter Number "pictures_too_large"),
        /// Processor time of composing and comparing.
        pub nanoseconds: u64 = (counter Nanos "composing"),
    }
}

counters! {
    /// What a driver asked of its virtual GSP.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct GspCounters sent as numbers {
        /// RPCs carried out or refused.
        pub rpcs: u64 = (counter Number "rpcs"),
        /// Controls among the RPCs.
        pub controls: u64 = (counter Number "controls"),
        /// RPCs of functions that are not known.
        pub rpcs_unknown: u64 = (counter Number "unknown" { "call": "function" }
            "Calls of the driver that GSP does not know"),
        /// Controls that are not known.
        pub controls_unknown: u64 = (counter Number "unknown" { "call": "control" }),
        /// Calls that are not supported, for their object or at all.
        pub refused_unsupported: u64 = (counter Number "refused" { "reason": "unsupported" }
            "RPCs, controls and allocations that were answered with an error"),
        /// Calls that name an object, client or channel that is not there, or is another one's.
        pub refused_object: u64 = (counter Number "refused" { "reason": "object" }),
        /// Allocations of classes that are not offered.
        pub refused_class: u64 = (counter Number "refused" { "reason": "class" }),
        /// Calls with parameters that are no good.
        pub refused_parameters: u64 = (counter Number "refused" { "reason": "parameters" }),
        /// Calls that the requester may not make.
        pub refused_permission: u64 = (counter Number "refused" { "reason": "permission" }),
        /// Calls that do not go with the state of things.
        pub refused_state: u64 = (counter Number "refused" { "reason": "state" }),
        /// Calls for which something had run out.
        pub refused_resources: u64 = (counter Number "refused" { "reason": "resources" }),
        /// Calls while the GPU was lost.
        pub refused_lost: u64 = (counter Number "refused" { "reason": "lost" }),
        /// Records of the command queue that were not taken.
        pub records_refused: u64 = (counter Number "refused_records"),
        /// Records with a number that was not the next.
        pub sequence_gaps: u64 = (counter Number "sequence_gaps"),
        /// RPCs given up, because their continuation did not come or was too large, and continuations of
        /// nothing.
        pub continuations_refused: u64 = (counter Number "refused_continuations"),
        /// Answers that did not fit the message queue.
        pub replies_dropped: u64 = (counter Number "dropped_replies"),
        /// Events sent.
        pub events: u64 = (counter Number "events"),
        /// Events that did not fit the message queue.
        pub events_dropped: u64 = (counter Number "dropped_events"),
        /// Channels that the backend stopped.
        pub channels_stopped: u64 = (counter Number "stopped_channels"),
        /// Suspensions that were not written, for want of memory that the driver must name.
        pub saves_refused: u64 = (counter Number "refused_saves"),
        /// Times that what a driver handed over after a suspension was not taken.
        pub restores_refused: u64 = (counter Number "refused_restores"),
        /// Notes for the log that were dropped because earlier ones had not been taken.
        pub notes_lost: u64 = (counter Number "lost_notes"),
    }
}

impl GspCounters {
    /// Both together: what was counted before a function reset, and since.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        let mut sums = self.numbers();
        for (sum, more) in sums.iter_mut().zip(more.numbers()) {
            *sum = sum.saturating_add(more);
        }
        Self::from_numbers(sums)
    }

    /// Calls that were answered with an error.
    pub fn refused(&self) -> u64 {
        let reasons = [
            self.refused_unsupported,
            self.refused_object,
            self.refused_class,
            self.refused_parameters,
            self.refused_permission,
            self.refused_state,
            self.refused_resources,
            self.refused_lost,
        ];
        reasons.into_iter().fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_sent_in_order_and_read_back() {
        let numbers: [u64; DriverCounters::NUMBERS] = std::array::from_fn(|at| at as u64 + 1);
        let counters = DriverCounters::from_numbers(numbers);
        assert_eq!(counters.numbers().collect::<Vec<_>>(), numbers);
        assert_eq!((counters.face.unlisted_reads, counters.gsp.rpcs), (1, FaceCounters::NUMBERS as u64 + 1));
        let looks = DriverCounters::NUMBERS - LookCounters::NUMBERS;
        assert_eq!((counters.gsp.notes_lost, counters.looks.viewers), (looks as u64, looks as u64 + 1));
        assert_eq!(counters.looks.nanoseconds, DriverCounters::NUMBERS as u64);
    }

    #[test]
    fn counts_of_two_boots_are_added_and_shown_without_zeroes() {
        let before = GspCounters { rpcs: 3, refused_class: 1, ..GspCounters::default() };
        let since = GspCounters { rpcs: u64::MAX, refused_state: 2, ..GspCounters::default() };
        let both = before.and(since);
        assert_eq!((both.rpcs, both.refused()), (u64::MAX, 3));
        assert_eq!(before.to_string(), "rpcs=3 refused_class=1");
    }
}
