//! LDGSTS: words of global memory to shared memory. It is done when the instruction is.

use super::address::{MISALIGNED, OUT_OF_RANGE, addresses, short};
use crate::exec::context::{Context, Done};
use crate::op::{Detail, Op};
use crate::row::{Lanes, Row};
use crate::warp::Warp;

pub(in crate::exec) fn copy(
    warp: &mut Warp,
    context: &mut Context<'_>,
    op: &Op,
    pool: &[Row],
    mask: u32,
) -> Done {
    let Detail::Copy(from, to, count) = op.detail else { return Ok(()) };
    let from = addresses(warp, op, from, pool);
    let to = short(warp, &Op { a: op.b, ..*op }, to, pool);
    let bytes = u32::from(count) * 4;
    let mut words = [0; 4];
    let words = &mut words[..usize::from(count).min(4)];
    for lane in Lanes(mask) {
        if !from[lane].is_multiple_of(bytes.into()) || !to[lane].is_multiple_of(bytes) {
            return Err(MISALIGNED);
        }
        context.view.load(from[lane], words)?;
        let shared = context.shared.words.get_mut((to[lane] / 4) as usize..);
        let shared = shared.and_then(|shared| shared.get_mut(..words.len())).ok_or(OUT_OF_RANGE)?;
        shared.copy_from_slice(words);
    }
    Ok(())
}
