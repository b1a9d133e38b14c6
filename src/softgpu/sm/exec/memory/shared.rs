//! Words of shared memory. Lanes that have the same address, or whose words follow each other, are served
//! together: sixteen or eight of them.

use super::address::{MISALIGNED, OUT_OF_RANGE};
use crate::exec::context::Done;
use crate::fault::Cause;
use crate::row::{LANES, Lanes, Row, span};

/// Bytes of a lane.
#[allow(clippy::cast_possible_truncation, reason = "1, 2 or 4 words")]
pub(super) const fn bytes<const COUNT: usize>() -> u32 {
    COUNT as u32 * 4
}

/// Loads words of lanes.
#[inline(always)]
pub(super) fn load_shared<const COUNT: usize>(
    words: &[u32],
    addresses: &Row,
    mask: u32,
    rows: &mut [Row; COUNT],
) -> Done {
    for half in [0, LANES / 2] {
        if load_together::<16, COUNT>(words, addresses, mask, half, rows) {
            continue;
        }
        for first in [half, half + 8] {
            if load_together::<8, COUNT>(words, addresses, mask, first, rows) {
                continue;
            }
            for lane in Lanes(mask & span(first, 8)) {
                let found = shared_words::<COUNT>(words, addresses[lane])?;
                for (row, word) in rows.iter_mut().zip(found) {
                    row[lane] = *word;
                }
            }
        }
    }
    Ok(())
}

/// Loads words of `N` lanes that have the same address, or whose words follow each other. Else, and where
/// not all of them are there, it loads nothing, and says so.
#[inline(always)]
fn load_together<const N: usize, const COUNT: usize>(
    words: &[u32],
    addresses: &Row,
    mask: u32,
    first: usize,
    rows: &mut [Row; COUNT],
) -> bool {
    let whole = span(first, N);
    let Some(at) = addresses[first..].first_chunk::<N>() else { return false };
    if mask & whole != whole {
        return false;
    }
    let (same, run) = pattern::<N, COUNT>(at);
    if same {
        let Ok(found) = shared_words::<COUNT>(words, at[0]) else { return false };
        for (row, word) in rows.iter_mut().zip(found) {
            row[first..first + N].fill(*word);
        }
        return true;
    }
    if !run {
        return false;
    }
    let Some(found) = run_of_shared(words, at[0], N, COUNT) else { return false };
    for (row, index) in rows.iter_mut().zip(0..) {
        for lane in 0..N {
            row[first + lane] = found[lane * COUNT + index];
        }
    }
    true
}

/// Whether lanes have the same address, and whether their words follow each other.
#[inline(always)]
fn pattern<const N: usize, const COUNT: usize>(at: &[u32; N]) -> (bool, bool) {
    let (mut other, mut apart, mut next) = (0, 0, at[0]);
    for address in at {
        other |= address ^ at[0];
        apart |= address ^ next;
        next = next.wrapping_add(bytes::<COUNT>());
    }
    (other == 0, apart == 0)
}

/// Words of a lane in shared memory.
#[inline(always)]
fn shared_words<const COUNT: usize>(words: &[u32], address: u32) -> Result<&[u32; COUNT], Cause> {
    if !address.is_multiple_of(bytes::<COUNT>()) {
        return Err(MISALIGNED);
    }
    let found = words.get((address / 4) as usize..).and_then(|words| words.first_chunk());
    found.ok_or(OUT_OF_RANGE)
}

/// The words of `lanes` lanes that follow each other, if all of them are there.
#[inline(always)]
fn run_of_shared(words: &[u32], address: u32, lanes: usize, count: usize) -> Option<&[u32]> {
    if !(address as usize).is_multiple_of(4 * count) {
        return None;
    }
    words.get((address / 4) as usize..)?.get(..lanes * count)
}

/// Stores words of lanes.
#[inline(always)]
pub(super) fn store_shared<const COUNT: usize>(
    words: &mut [u32],
    addresses: &Row,
    mask: u32,
    rows: [&Row; COUNT],
) -> Done {
    for half in [0, LANES / 2] {
        if store_together::<16, COUNT>(words, addresses, mask, half, rows) {
            continue;
        }
        for first in [half, half + 8] {
            if store_together::<8, COUNT>(words, addresses, mask, first, rows) {
                continue;
            }
            for lane in Lanes(mask & span(first, 8)) {
                let address = addresses[lane];
                shared_words::<COUNT>(words, address)?;
                for (word, row) in words[(address / 4) as usize..].iter_mut().zip(rows) {
                    *word = row[lane];
                }
            }
        }
    }
    Ok(())
}

/// Stores words of `N` lanes that follow each other. Else, and where not all of them are there, it stores
/// nothing, and says so.
#[inline(always)]
fn store_together<const N: usize, const COUNT: usize>(
    words: &mut [u32],
    addresses: &Row,
    mask: u32,
    first: usize,
    rows: [&Row; COUNT],
) -> bool {
    let whole = span(first, N);
    let Some(at) = addresses[first..].first_chunk::<N>() else { return false };
    if mask & whole != whole || !pattern::<N, COUNT>(at).1 || run_of_shared(words, at[0], N, COUNT).is_none()
    {
        return false;
    }
    let from = (at[0] / 4) as usize;
    for (lane, words) in words[from..].chunks_exact_mut(COUNT).take(N).enumerate() {
        for (word, row) in words.iter_mut().zip(rows) {
            *word = row[first + lane];
        }
    }
    true
}
