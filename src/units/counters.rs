//! What a register face counts, for status pages and logs.

use std::fmt;

/// Accesses of note since the function was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaceCounters {
    /// Reads of registers that no table lists.
    pub unlisted_reads: u64,
    /// Writes to registers that no table lists.
    pub unlisted_writes: u64,
    /// Writes to registers that drivers may not write.
    pub refused: u64,
    /// CPU accesses through BAR1 and BAR3 that had no translation.
    pub window_faults: u64,
    /// Register writes by FECS patch lists whose consequences were dropped (GF100).
    pub dropped_patches: u64,
    /// Messages to FSP that were answered with an error (GH100).
    pub fsp_errors: u64,
    /// Doorbells that named no channel (GH100).
    pub bad_doorbells: u64,
    /// Channels stopped by the back of which the driver was not told, for lack of room (GH100).
    pub dropped_stops: u64,
    /// RPCs and controls that the virtual GSP does not know (GH100).
    pub gsp_unknown: u64,
    /// RPCs, allocations and controls that the virtual GSP refused (GH100).
    pub gsp_refused: u64,
    /// What the virtual GSP did not take from the driver's queue: broken records, lost continuations (GH100).
    pub gsp_not_taken: u64,
    /// Answers and events for which the driver's queue had no room (GH100).
    pub gsp_dropped: u64,
}

/// `name=count`, for those that are not 0.
impl fmt::Display for FaceCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("unlisted_reads", self.unlisted_reads),
            ("unlisted_writes", self.unlisted_writes),
            ("refused", self.refused),
            ("window_faults", self.window_faults),
            ("dropped_patches", self.dropped_patches),
            ("fsp_errors", self.fsp_errors),
            ("bad_doorbells", self.bad_doorbells),
            ("dropped_stops", self.dropped_stops),
            ("gsp_unknown", self.gsp_unknown),
            ("gsp_refused", self.gsp_refused),
            ("gsp_not_taken", self.gsp_not_taken),
            ("gsp_dropped", self.gsp_dropped),
        ];
        let mut separator = "";
        for (name, count) in all.into_iter().filter(|(_, count)| *count != 0) {
            write!(f, "{separator}{name}={count}")?;
            separator = " ";
        }
        if separator.is_empty() { f.write_str("nothing of note") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_are_not_0_and_their_names() {
        let counters = FaceCounters { unlisted_writes: 2, gsp_unknown: 7, ..FaceCounters::default() };
        assert_eq!(counters.to_string(), "unlisted_writes=2 gsp_unknown=7");
        assert_eq!(FaceCounters::default().to_string(), "nothing of note");
    }
}
