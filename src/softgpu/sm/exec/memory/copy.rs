//! LDGSTS: words of global memory to shared memory. It is done when the instruction is.
//!
//! With ZFILL the address need not be aligned: what lies from there down to a multiple of the width is not
//! copied, but as many bytes are zero at the end; and all are for lanes without the predicate.

use super::address::{MISALIGNED, OUT_OF_RANGE, addresses, short};
use crate::exec::context::{Context, Done};
use crate::op::{Detail, Op};
use crate::row::{Kept, Lanes};
use crate::warp::Warp;

pub(in crate::exec) fn copy(
    warp: &mut Warp,
    context: &mut Context<'_>,
    op: &Op,
    pool: &[Kept],
    mask: u32,
) -> Done {
    let Detail::Copy(from, to, count, fills) = op.detail else { return Ok(()) };
    let from = addresses(warp, op, from, pool);
    let to = short(warp, &Op { a: op.b, ..*op }, to, pool);
    let wanted = if fills { warp.lanes(op.from[0]) } else { u32::MAX };
    let bytes = u32::from(count) * 4;
    let length = usize::from(count).min(4);
    for lane in Lanes(mask) {
        let within = from[lane] % u64::from(bytes);
        if within != 0 && !fills || !to[lane].is_multiple_of(bytes) {
            return Err(MISALIGNED);
        }
        let mut words = [0; 4];
        let words = &mut words[..length];
        if wanted >> lane & 1 == 1 {
            context.view.load(from[lane] - within, words)?;
            zero_last(words, u32::try_from(within).unwrap_or(0));
        }
        let shared = context.shared.words.get_mut((to[lane] / 4) as usize..);
        let shared = shared.and_then(|shared| shared.get_mut(..words.len())).ok_or(OUT_OF_RANGE)?;
        shared.copy_from_slice(words);
    }
    Ok(())
}

/// Zeros the last bytes.
fn zero_last(words: &mut [u32], bytes: u32) {
    for (word, before) in words.iter_mut().rev().zip((0..).step_by(4)) {
        let kept = u32::MAX.checked_shr(bytes.saturating_sub(before).saturating_mul(8)).unwrap_or(0);
        *word &= kept;
    }
}
