//! LUD: matrices become products of a lower and an upper triangular one, many at once, by tiles.

use anyhow::Result;

use super::Size;
use crate::job::{Check, Job, Part, Room, Step, Value};
use crate::reference::{close, floats, result, samples, unit};

const TILE: u32 = 32;
const SEED: u32 = 31;
/// Matrices that come back, at most.
const LOOKED_AT: u32 = 3;
/// Sums are in another order.
const TOLERANCE: f64 = 1e-5;

pub(super) fn job(size: Size) -> Job {
    let (side, matrices): (u32, u32) = size.pick((96, 1), (512, 64));
    let one = (side * side * 4) as usize;
    let tiles = side / TILE;
    let step = |kernel, grid, block, number: u32| Step {
        kernel,
        grid,
        block,
        arguments: vec![Value::Room(0), Value::Word(side), Value::Word(number)],
    };
    let mut steps = vec![step("lud_fill", [(side * side).div_ceil(256), matrices, 1], [256, 1, 1], SEED)];
    for number in 0..tiles {
        let left = tiles - 1 - number;
        steps.push(step("lud_diagonal", [matrices, 1, 1], [TILE, 1, 1], number));
        if left > 0 {
            steps.push(step("lud_edge", [left, matrices, 2], [TILE, 1, 1], number));
            steps.push(step("lud_inner", [left, left, matrices], [TILE, 8, 1], number));
        }
    }
    let some = matrices.min(LOOKED_AT);
    // The first ones, and the last.
    let which = move |number: u32| if number + 1 == some { matrices - 1 } else { number };
    let results =
        (0..some).map(|number| Part { room: 0, at: which(number) as usize * one, bytes: one }).collect();
    let check: Check = Box::new(move |results| {
        (0..some).try_for_each(|number| {
            let found = floats(result(results, number as usize)?);
            compare(&found, side as usize, which(number), size)
        })
    });
    let rooms = vec![Room::empty(one * matrices as usize)];
    Job { rooms, steps, transfers: vec![], results, check }
}

/// That the product of both is what was there.
fn compare(found: &[f32], side: usize, matrix: u32, size: Size) -> Result<()> {
    let get = |y: usize, x: usize| f64::from(found.get(y * side + x).copied().unwrap_or(f32::NAN));
    let first = matrix * (side * side) as u32 + SEED;
    samples(size.pick(usize::MAX, 400), side * side, 19).try_for_each(|at| {
        let (y, x) = (at / side, at % side);
        let lower = |k: usize| if k == y { 1.0 } else { get(y, k) };
        let product: f64 = (0..=y.min(x)).map(|k| lower(k) * get(k, x)).sum();
        let wanted = unit(first.wrapping_add(at as u32)) + if y == x { side as f32 } else { 0.0 };
        let place = format_args!("matrix {matrix}, row {y}, column {x}");
        close(Some(&(product as f32)), f64::from(wanted), TOLERANCE, place)
    })
}
