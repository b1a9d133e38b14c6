//! Blocks of the heap that a large table keeps until it is small again, so that its memory goes back to the
//! kernel in pieces, and on another thread.
//!
//! The C library gives the heap's upper end back when what lies there is free: all of it, within the call of
//! `free` that made it so. When the last nodes of a table of 790,528 runs went, that was one `brk` by 46 MiB,
//! which took 2 to 3 ms of whoever freed them. A block that is still in use keeps what lies below it. So the
//! table takes one each time it has grown by [`RUNS`] runs, and gives them up, the uppermost first, when it
//! is empty: the reaper's thread then frees less than a megabyte at a time.

use gpuvmk_host::reaper;

/// Runs between two pins: a third of a megabyte of nodes.
pub(super) const RUNS: usize = 4096;

/// More than what the C library keeps for a thread's next call instead of freeing it (1032 bytes).
const SIZE: usize = 2048;

type Pin = Box<[u8; SIZE]>;

/// The pins of one table.
#[derive(Clone, Debug, Default)]
pub(super) struct HeapPins(Vec<Pin>);

impl HeapPins {
    /// The table has so many runs now.
    pub(super) fn follow(&mut self, runs: usize) {
        if runs / RUNS > self.0.len() {
            self.0.push(Box::new([0; SIZE]));
        } else if runs == 0 && !self.0.is_empty() {
            let mut pins = std::mem::take(&mut self.0);
            // They are freed in this order.
            pins.sort_unstable_by_key(|pin| std::cmp::Reverse(pin.as_ptr().addr()));
            reaper::give_up(pins);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
