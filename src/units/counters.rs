//! Counters of a register face, for status pages.

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
    /// Channels that the back stopped and that were not reported to the driver, for lack of room (GH100).
    pub dropped_stops: u64,
}
