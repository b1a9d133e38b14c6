//! Where work is taken off an engine.

/// Where the software GPU takes work off an engine that others want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// Anywhere, also in the middle of a copy.
    #[default]
    Anywhere,
    /// Between two methods only, as a GF100 does: a copy ends, or its engine is reset.
    Methods,
}
