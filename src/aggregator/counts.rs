//! Counts of 64 bits in shared memory, which one process adds to and another reads whole: a number before
//! them is odd while they change, and then the reader reads again. They are not verified, and can spoil
//! nothing but its own line of the status.

use std::sync::atomic::{Ordering, fence};

use super::shared::SharedWords;

/// Times that changing counts are read again.
const TRIES: usize = 4;

/// Words for so many counts.
pub(super) const fn words(counts: usize) -> usize {
    1 + 2 * counts
}

/// Writes counts to words from `at` on. Calls must not overlap.
pub(super) fn store(counts: impl IntoIterator<Item = u64>, words: &SharedWords, at: usize) {
    store_some((0_usize..).zip(counts), words, at);
}

/// Writes some of the counts, each with its number among those from `at` on. The others stay. Calls must not
/// overlap.
pub(super) fn store_some(counts: impl IntoIterator<Item = (usize, u64)>, words: &SharedWords, at: usize) {
    let version = words.word(at);
    let before = version.load(Ordering::Relaxed) | 1;
    version.store(before, Ordering::Relaxed);
    fence(Ordering::Release);
    for (number, count) in counts {
        let place = number.wrapping_mul(2).wrapping_add(1);
        let [a, b, c, d, e, f, g, h] = count.to_le_bytes();
        let low = words.word(at.wrapping_add(place));
        low.store(u32::from_le_bytes([a, b, c, d]), Ordering::Relaxed);
        let high = words.word(at.wrapping_add(place).wrapping_add(1));
        high.store(u32::from_le_bytes([e, f, g, h]), Ordering::Relaxed);
    }
    version.store(before.wrapping_add(1), Ordering::Release);
}

/// Reads counts from words that their sender may change at any time: halves belong together if it is honest.
pub(super) fn load<const N: usize>(words: &SharedWords, at: usize) -> [u64; N] {
    let mut counts = [0; N];
    for _ in 0..TRIES {
        let version = words.word(at).load(Ordering::Acquire);
        for (place, count) in (1_usize..).step_by(2).zip(&mut counts) {
            let [low, high] = [0, 1].map(|half: usize| {
                let word = words.word(at.wrapping_add(place).wrapping_add(half));
                u64::from(word.load(Ordering::Relaxed))
            });
            *count = low | high << 32;
        }
        fence(Ordering::Acquire);
        if version.is_multiple_of(2) && words.word(at).load(Ordering::Relaxed) == version {
            break;
        }
    }
    counts
}
