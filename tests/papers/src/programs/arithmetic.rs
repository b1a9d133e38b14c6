//! NOP, LOOP, MADD, MMUL, FMADD and FMMUL.

use anyhow::Result;

use super::{Size, row};
use crate::job::{Check, Job, Part, Room, Step, Value};
use crate::reference::{bytes, equal, mix, result, same, samples, unit, words};

/// Places that are compared where a matrix is large.
const SAMPLES: usize = 600;

pub(super) fn nop(_size: Size) -> Job {
    let check: Check = Box::new(|_| Ok(()));
    Job { rooms: vec![], steps: vec![row("nop", 1, 32, &[])], transfers: vec![], results: vec![], check }
}

/// A linear congruential generator in each thread, which begins with its number.
pub(super) fn looped(size: Size) -> Job {
    let (blocks, threads, rounds) = size.pick((4, 64, 100), (1056, 256, 1 << 17));
    let count = (blocks * threads) as usize;
    let check: Check = Box::new(move |results| {
        let found = words(result(results, 0)?);
        let (factor, addend) = repeated(rounds);
        (0..count).zip(0_u32..).try_for_each(|(at, thread)| {
            same(found.get(at), thread.wrapping_mul(factor).wrapping_add(addend), format_args!("thread {at}"))
        })
    });
    Job {
        rooms: vec![Room::empty(count * 4)],
        steps: vec![row("loop", blocks, threads, &[Value::Room(0), Value::Word(rounds)])],
        transfers: vec![],
        results: vec![Part { room: 0, at: 0, bytes: count * 4 }],
        check,
    }
}

/// Factor and addend of so many steps of the generator.
fn repeated(rounds: u32) -> (u32, u32) {
    let (factor, addend) = (1_664_525_u32, 1_013_904_223_u32);
    (0..rounds).fold((1_u32, 0_u32), |(all, sum), _| {
        (all.wrapping_mul(factor), sum.wrapping_mul(factor).wrapping_add(addend))
    })
}

/// Numbers of an entry of the first and of the second matrix.
fn entries(at: usize) -> [u32; 2] {
    [1, 2].map(|which: u32| mix((at as u32).wrapping_mul(2).wrapping_add(which)))
}

/// A sum or product of two matrices, of words or of numbers.
struct Of<T> {
    side: usize,
    size: Size,
    /// An entry of the two matrices.
    entry: fn(usize) -> [T; 2],
    /// Their bits.
    bits: fn(T) -> u32,
    /// The result at a row and a column.
    wanted: Box<dyn Fn(usize, usize) -> T>,
    step: Step,
}

impl<T: Copy + 'static> Of<T> {
    fn job(self, compare: fn(&[u8], usize, T, String) -> Result<()>) -> Job {
        let Self { side, size, entry, bits, wanted, step } = self;
        let matrix = |which: usize| {
            let of = |at| entry(at).into_iter().nth(which).map_or(0, bits);
            Room::with(bytes((0..side * side).map(of)))
        };
        let check: Check = Box::new(move |results| {
            let found = result(results, 0)?;
            samples(size.pick(usize::MAX, SAMPLES), side * side, 7).try_for_each(|at| {
                let (y, x) = (at / side, at % side);
                compare(found, at, wanted(y, x), format!("row {y}, column {x}"))
            })
        });
        let whole = side * side * 4;
        Job {
            rooms: vec![matrix(0), matrix(1), Room::empty(whole)],
            steps: vec![step],
            transfers: vec![],
            results: vec![Part { room: 2, at: 0, bytes: whole }],
            check,
        }
    }
}

fn entry_at(found: &[u8], at: usize) -> Option<u32> {
    found.get(at * 4..).and_then(|rest| Some(u32::from_le_bytes(*rest.first_chunk()?)))
}

fn compare_words(found: &[u8], at: usize, wanted: u32, place: String) -> Result<()> {
    same(entry_at(found, at).as_ref(), wanted, place)
}

fn compare_numbers(found: &[u8], at: usize, wanted: f32, place: String) -> Result<()> {
    equal(entry_at(found, at).map(f32::from_bits).as_ref(), wanted, place)
}

fn numbers(at: usize) -> [f32; 2] {
    [1, 2].map(|which: u32| unit((at as u32).wrapping_mul(2).wrapping_add(which)))
}

fn sum_step(kernel: &'static str, side: u32, rounds: u32) -> Step {
    let rooms = [0, 1, 2].map(Value::Room);
    let arguments = [&rooms[..], &[Value::Word(side), Value::Word(rounds)]].concat();
    let threads = side.min(256);
    Step { kernel, grid: [side.div_ceil(threads), side, 1], block: [threads, 1, 1], arguments }
}

fn product_step(kernel: &'static str, side: u32) -> Step {
    let arguments = [Value::Room(0), Value::Room(1), Value::Room(2), Value::Word(side)].to_vec();
    Step { kernel, grid: [side / 16, side / 16, 1], block: [16, 16, 1], arguments }
}

/// The row that is added in a round.
const fn turned(row: usize, round: usize, side: usize) -> usize {
    (row + round) % side
}

pub(super) fn madd(size: Size) -> Job {
    let (side, rounds) = size.pick((48, 3), (1024, 768));
    let wanted = move |y, x| {
        let add = |sum: u32, round| {
            let [one, two] = entries(turned(y, round, side) * side + x);
            sum.wrapping_add(one.wrapping_add(two))
        };
        (0..rounds).fold(0, add)
    };
    let step = sum_step("madd", side as u32, rounds as u32);
    Of { side, size, entry: entries, bits: |word| word, wanted: Box::new(wanted), step }.job(compare_words)
}

pub(super) fn fmadd(size: Size) -> Job {
    let (side, rounds) = size.pick((48, 3), (1024, 768));
    let wanted = move |y, x| {
        let add = |sum: f32, round| {
            let [one, two] = numbers(turned(y, round, side) * side + x);
            sum + (one + two)
        };
        (0..rounds).fold(0.0, add)
    };
    let step = sum_step("fmadd", side as u32, rounds as u32);
    Of { side, size, entry: numbers, bits: f32::to_bits, wanted: Box::new(wanted), step }.job(compare_numbers)
}

pub(super) fn mmul(size: Size) -> Job {
    let side = size.pick(48, 1536);
    let wanted = move |y, x| {
        let add = |sum: u32, k| {
            let ([left, _], [_, right]) = (entries(y * side + k), entries(k * side + x));
            sum.wrapping_add(left.wrapping_mul(right))
        };
        (0..side).fold(0, add)
    };
    let step = product_step("mmul", side as u32);
    Of { side, size, entry: entries, bits: |word| word, wanted: Box::new(wanted), step }.job(compare_words)
}

pub(super) fn fmmul(size: Size) -> Job {
    let side = size.pick(48, 1536);
    let wanted = move |y, x| {
        let add = |sum: f32, k| {
            let ([left, _], [_, right]) = (numbers(y * side + k), numbers(k * side + x));
            sum + left * right
        };
        (0..side).fold(0.0, add)
    };
    let step = product_step("fmmul", side as u32);
    Of { side, size, entry: numbers, bits: f32::to_bits, wanted: Box::new(wanted), step }.job(compare_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_steps_are_single_ones() {
        let (factor, addend) = repeated(3);
        let step = |value: u32| value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        assert_eq!(9_u32.wrapping_mul(factor).wrapping_add(addend), step(step(step(9))));
    }
}
