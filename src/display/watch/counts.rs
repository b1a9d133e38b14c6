//! What is counted of composing.

use gpuvmk_counters::Kept;

/// What composing came to.
#[derive(Debug, Default)]
pub struct WatchCounts {
    /// Pictures that were composed.
    pub composed: Kept,
    /// Those that differed from the one before.
    pub changed: Kept,
    /// Pieces of surfaces, cursors and tables that could not be read.
    pub unread: Kept,
    /// Pictures that were larger than a frame may be.
    pub too_large: Kept,
    /// Nanoseconds of composing and comparing.
    pub nanoseconds: Kept,
}
