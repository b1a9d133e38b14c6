//! How far a piece of video memory is that a worker clears.

use std::time::Instant;

/// A piece of video memory that is being cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) size: u64,
    pub(super) began: Instant,
    pub(super) phase: Phase,
}

/// How far it is; with the value that its semaphore gets, or the bytes that were looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Zeroing(u32),
    Reading(u32),
    Checking(u64),
}
