//! LDSM and STSM: matrices of 8 x 8 halves from shared memory, and into it. Lane `8 m + r` has the address
//! of row `r` of matrix `m`; of each matrix, lane `4 g + t` has elements `2 t` and `2 t + 1` of row `g`, or
//! of column `g` if they are transposed (PTX manual, `ldmatrix` and `stmatrix`).

use super::address::{MISALIGNED, OUT_OF_RANGE, short};
use crate::exec::context::{Context, Done, put};
use crate::op::{Detail, Op};
use crate::row::{ALL, Kept, LANES, each};
use crate::warp::Warp;

/// Words of a row.
const WORDS: usize = 4;

/// Rows of a matrix.
const ROWS: usize = 8;

/// A row of a matrix: words of shared memory.
fn row_at(words: &[u32], address: u32) -> Result<[u32; WORDS], crate::fault::Cause> {
    if !address.is_multiple_of(16) {
        return Err(MISALIGNED);
    }
    let found = words.get((address / 4) as usize..).and_then(|words| words.first_chunk());
    found.copied().ok_or(OUT_OF_RANGE)
}

pub(in crate::exec) fn matrices(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Kept]) -> Done {
    let Detail::Matrices(place, count, transposed) = op.detail else { return Ok(()) };
    let addresses = short(warp, op, place, pool);
    let mut to = op.d;
    let mut found = [[[0; WORDS]; ROWS]; 4];
    let found = &mut found[..usize::from(count).min(4)];
    for (rows, addresses) in found.iter_mut().zip(addresses.as_chunks::<ROWS>().0) {
        for (row, address) in rows.iter_mut().zip(addresses) {
            *row = row_at(&context.shared.words, *address)?;
        }
    }
    for rows in found {
        let half = |row: usize, column: usize| rows[row][column / 2] >> (16 * (column % 2)) << 16 >> 16;
        let register = each(|lane| {
            let (group, pair) = (lane / 4, lane % 4);
            if transposed {
                half(2 * pair, group) | half(2 * pair + 1, group) << 16
            } else {
                rows[group][pair]
            }
        });
        put(warp, to, &register, ALL)?;
        to = crate::lower::following(to);
    }
    Ok(())
}

pub(in crate::exec) fn store_matrices(
    warp: &mut Warp,
    context: &mut Context<'_>,
    op: &Op,
    pool: &[Kept],
) -> Done {
    let Detail::Matrices(place, count, transposed) = op.detail else { return Ok(()) };
    let addresses = short(warp, op, place, pool);
    let mut from = op.b.row;
    for addresses in addresses.as_chunks::<ROWS>().0.iter().take(count.into()) {
        let register = warp.row(pool, from);
        let half = |lane: usize, which: usize| register[lane % LANES] >> (16 * which) << 16 >> 16;
        for (row, address) in addresses.iter().enumerate() {
            row_at(&context.shared.words, *address)?;
            for column in 0..WORDS {
                let word = if transposed {
                    // Elements 2 c and 2 c + 1 of row r are element r of those columns.
                    let [low, high] = [2 * column, 2 * column + 1].map(|of| half(4 * of + row / 2, row % 2));
                    low | high << 16
                } else {
                    register[4 * row + column]
                };
                context.shared.words[(*address / 4) as usize + column] = word;
            }
        }
        from = crate::lower::following(from);
    }
    Ok(())
}
