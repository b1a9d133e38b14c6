//! Barriers in shared memory (mbarrier): double words with the number of those who have yet to come, and a
//! phase that is over when all have. Compiled code makes these words, and takes phases and numbers out of
//! them, so that it is known where those are. Bytes that a phase waits for are not executed.

use gpuvmk_isa::{Bits, Word};

use super::context::{Context, Done, put_wide};
use super::memory::{MISALIGNED, OUT_OF_RANGE, addresses};
use crate::fault::Cause;
use crate::op::{Detail, Op, Phased};
use crate::row::{Kept, LANES, Lanes, ZERO, low, pair};
use crate::warp::Warp;

/// Where things are in a word.
struct Layout {
    /// How many have yet to come, negated.
    pending: Bits,
    /// How many come in each phase, negated.
    expected: Bits,
    phase: Bits,
}

const AMPERE: Layout =
    Layout { pending: Bits::new(32, 31), expected: Bits::new(0, 30), phase: Bits::new(63, 1) };
const HOPPER: Layout =
    Layout { pending: Bits::new(43, 20), expected: Bits::new(1, 20), phase: Bits::new(63, 1) };

/// A negated number of a field.
fn negated(count: u64, field: Bits) -> u64 {
    Word(u128::from(count.wrapping_neg())).get(Bits::new(0, field.len))
}

impl Layout {
    /// The word after so many have come, of whom some leave.
    fn after(&self, word: u64, count: u64, leaving: u64) -> u64 {
        let word = Word(word.into());
        let left = |field: Bits, less: u64| negated(word.get(field), field).saturating_sub(less);
        let (expected, pending) = (left(self.expected, leaving), left(self.pending, count));
        let word = word.with(self.expected, negated(expected, self.expected));
        let word = if pending == 0 {
            word.with(self.pending, negated(expected, self.pending))
                .with(self.phase, 1 - word.get(self.phase))
        } else {
            word.with(self.pending, negated(pending, self.pending))
        };
        word.get(Bits::new(0, 64))
    }
}

/// The two words of a barrier.
fn barrier<'a>(context: &'a mut Context<'_>, address: u64) -> Result<&'a mut [u32; 2], Cause> {
    if !address.is_multiple_of(8) {
        return Err(MISALIGNED);
    }
    let first = usize::try_from(address / 4).unwrap_or(usize::MAX);
    let found = context.shared.words.get_mut(first..).and_then(|words| words.first_chunk_mut());
    found.ok_or(OUT_OF_RANGE)
}

/// Does something to barriers, lanes one after the other from the lowest on. Who arrives is told the word
/// before.
pub(super) fn run(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Phase(place, what) = op.detail else { return Ok(()) };
    let addresses = addresses(warp, op, place, pool);
    let [data, above] = warp.rows(pool, op.b).map(|row| *row);
    let mut before = [ZERO; 2];
    match what {
        Phased::Exchange => {
            let words = barrier(context, addresses[0])?;
            before = words.map(|word| [word; LANES]);
            *words = [data[0], above[0]];
        }
        Phased::Arrive { several, leave, ampere } => {
            let layout = if ampere { &AMPERE } else { &HOPPER };
            for lane in Lanes(mask) {
                let words = barrier(context, addresses[lane])?;
                (before[0][lane], before[1][lane]) = (words[0], words[1]);
                let count = if several { data[lane].into() } else { 1 };
                let after = layout.after(pair(words[0], words[1]), count, leave.into());
                *words = [low(after), low(after >> 32)];
            }
        }
        Phased::Check => {
            let mut over = 0;
            for lane in Lanes(mask) {
                let [_, now] = *barrier(context, addresses[lane])?;
                // The upper word of what was told, or the phase's number where that has the phase.
                let phase = |word: u32| Word(u128::from(word) << 32).get(HOPPER.phase);
                over |= u32::from(phase(now) != phase(data[lane])) << lane;
            }
            warp.put_predicate(op.to[0], over, mask);
            return Ok(());
        }
    }
    put_wide(warp, op.d, &before, mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As compiled code makes it.
    fn fresh(layout: &Layout, count: u64) -> u64 {
        let word = Word(0).with(layout.expected, negated(count, layout.expected));
        word.with(layout.pending, negated(count, layout.pending)).get(Bits::new(0, 64))
    }

    #[test]
    fn words_are_those_that_compiled_code_makes() {
        assert_eq!(fresh(&AMPERE, 64), pair(0x3fff_ffc0, 0x7fff_ffc0));
        let word = 0x10_0000_u32 - 64;
        assert_eq!(fresh(&HOPPER, 64), pair(word << 1, word << 11));
    }

    #[test]
    fn a_phase_ends_with_the_last_one() {
        for layout in [&AMPERE, &HOPPER] {
            let first = fresh(layout, 3);
            let mut word = first;
            for _ in 0..2 {
                word = layout.after(word, 1, 0);
                assert_eq!(word >> 63, 0);
            }
            word = layout.after(word, 1, 0);
            assert_eq!(word, first | 1 << 63);
            // All at once, and the phase is the first one again.
            assert_eq!(layout.after(word, 3, 0), first);
        }
    }

    #[test]
    fn who_leaves_is_not_waited_for_again() {
        for layout in [&AMPERE, &HOPPER] {
            let left = layout.after(layout.after(fresh(layout, 2), 1, 1), 1, 0);
            assert_eq!(left, fresh(layout, 1) | 1 << 63);
            assert_eq!(layout.after(left, 1, 0), fresh(layout, 1));
        }
    }
}
