//! NW: scores of pairs of sequences after Needleman and Wunsch, diagonal by diagonal of tiles.

use anyhow::{Result, ensure};

use super::Size;
use crate::job::{Check, Job, Part, Room, Step, Value};
use crate::reference::{mix, result};

/// Letters on a tile's side.
const TILE: u32 = 64;
/// Scores of equal and of other letters.
const EQUAL: i32 = 5;
const OTHER: i32 = -3;

pub(super) fn job(size: Size) -> Job {
    // What a gap costs: each of these is tried, and the last one's scores stay.
    let gaps: &[u32] = match size {
        Size::Small => &[3],
        Size::Full => &[10, 8, 6, 4],
    };
    let (length, pairs): (u32, u32) = size.pick((128, 2), (512, 512));
    let width = length as usize + 1;
    let one = width * width * 2;
    let tiles = length / TILE;
    let mut steps = Vec::new();
    for gap in gaps {
        steps.push(Step {
            kernel: "nw_edges",
            grid: [(length + 1).div_ceil(256), pairs, 1],
            block: [256, 1, 1],
            arguments: vec![Value::Room(0), Value::Word(length), Value::Word(*gap)],
        });
        for diagonal in 0..2 * tiles - 1 {
            let top = (diagonal + 1).saturating_sub(tiles);
            let bottom = diagonal.min(tiles - 1);
            steps.push(Step {
                kernel: "nw_tiles",
                grid: [bottom - top + 1, pairs, 1],
                block: [TILE, 1, 1],
                arguments: vec![
                    Value::Room(0),
                    Value::Word(length),
                    Value::Word(diagonal),
                    Value::Word(top),
                    Value::Word(*gap),
                ],
            });
        }
    }
    let last = gaps.last().copied().unwrap_or(0);
    let looked_at = [0, pairs - 1];
    let check: Check = Box::new(move |results| {
        for (number, pair) in looked_at.into_iter().enumerate() {
            compare(result(results, number)?, pair, length as usize, last.cast_signed())?;
        }
        Ok(())
    });
    Job {
        rooms: vec![Room::empty((one * pairs as usize).next_multiple_of(16))],
        steps,
        transfers: vec![],
        results: looked_at.map(|pair| Part { room: 0, at: pair as usize * one, bytes: one }).to_vec(),
        check,
    }
}

fn letter(pair: u32, which: u32, at: usize) -> u32 {
    mix((pair * 2 + which) * 65_536 + at as u32) & 3
}

/// All scores of a pair.
fn compare(found: &[u8], pair: u32, length: usize, gap: i32) -> Result<()> {
    let across: Vec<u32> = (0..length).map(|at| letter(pair, 1, at)).collect();
    let mut above: Vec<i32> = (0..=length).map(|at| -gap * at as i32).collect();
    let rows = found.chunks((length + 1) * 2);
    ensure!(rows.len() == length + 1, "{} rows", rows.len());
    for (number, row) in rows.enumerate() {
        if number > 0 {
            let mine = letter(pair, 0, number - 1);
            let mut left = -gap * number as i32;
            let mut current = vec![left];
            for (pair_above, theirs) in above.windows(2).zip(&across) {
                let both = pair_above[0] + if mine == *theirs { EQUAL } else { OTHER };
                left = both.max(pair_above[1].max(left) - gap);
                current.push(left);
            }
            above = current;
        }
        let scores = row.as_chunks().0.iter().map(|score| i32::from(i16::from_le_bytes(*score)));
        for (column, (score, wanted)) in scores.zip(&above).enumerate() {
            ensure!(
                score == *wanted,
                "pair {pair}, row {number}, column {column}: {score} instead of {wanted}"
            );
        }
    }
    Ok(())
}
