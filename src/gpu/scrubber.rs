//! Zeroing VRAM.

/// How far VRAM is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrub {
    /// It is.
    Done,
    /// It was before: nobody has touched it.
    Untouched,
    /// The GPU is at it.
    Pending,
    /// The GPU has done its part, and the rest goes on at the next call.
    More,
}
