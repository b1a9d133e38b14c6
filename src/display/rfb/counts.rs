//! What is counted of viewers.

use gpuvmk_counters::Kept;

/// What the server did.
#[derive(Debug, Default)]
pub struct ViewerCounts {
    /// Viewers that came.
    pub came: Kept,
    /// Viewers that were sent away because there were enough.
    pub too_many: Kept,
    /// Viewers that could not be understood.
    pub faults: Kept,
    /// Viewers that took too long to say what they want, or to take what they get.
    pub too_slow: Kept,
    /// Bytes that viewers got.
    pub bytes: Kept,
}
