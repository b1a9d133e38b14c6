//! Products of matrices, whose elements lie in the registers of all lanes, and transposed matrices.
//!
//! A fragment's places are those of PTX's `mma` and `movmatrix` (PTX manual): lane `4 g + t` holds of row or
//! column `g` the elements from `t` times the elements of a register on.

use gpuvmk_isa::Opcode as O;

use super::context::{Done, put};
use crate::lower::following;
use crate::numerics::double;
use crate::numerics::format::Format;
use crate::numerics::rounding::Rounding;
use crate::numerics::tensor::{self, Sum};
use crate::op::{Detail, Elements, Matrix, Op, Source};
use crate::row::{ALL, Kept, LANES, Row, ZERO, each, low, pair};
use crate::warp::Warp;

/// Registers of a fragment at most.
const REGISTERS: usize = 4;

/// Rows of 8, and columns.
const EIGHT: usize = 8;

/// A fragment's registers.
fn fragment(warp: &Warp, pool: &[Kept], source: Source) -> [Row; REGISTERS] {
    let mut row = source.row;
    std::array::from_fn(|_| {
        let value = *warp.row(pool, row);
        row = following(row);
        value
    })
}

fn keep(warp: &mut Warp, op: &Op, rows: &[Row]) -> Done {
    let mut to = op.d;
    for row in rows {
        put(warp, to, row, ALL)?;
        to = following(to);
    }
    Ok(())
}

/// An element of a register that holds as many as fit.
fn element(word: u32, index: usize, bits: u32) -> u32 {
    let index = u32::try_from(index).unwrap_or(0);
    // One that is alone has the upper bits.
    let below = if bits > 16 { 32 - bits } else { 0 };
    word >> (bits * index + below) & (u32::MAX >> (32 - bits))
}

impl Matrix {
    /// Where element `k` of a row or column `g` is: lane, the register's number among those of the row, and
    /// the place in it.
    const fn place(self, g: usize, k: usize) -> (usize, usize, usize) {
        let packed = self.elements.packed();
        (4 * g + k / packed % 4, k / (4 * packed), k % packed)
    }

    /// Element `k` of a row of the first factor.
    fn first(self, a: &[Row; REGISTERS], row: usize, k: usize) -> u32 {
        let (lane, register, index) = self.place(row % EIGHT, k);
        // Rows 8 to 15 have every second register.
        let register = if self.rows > EIGHT { 2 * register + row / EIGHT } else { register };
        element(a[register % REGISTERS][lane], index, self.elements.bits())
    }

    /// Element `k` of a column of the second factor.
    fn second(self, b: &[Row; REGISTERS], column: usize, k: usize) -> u32 {
        let (lane, register, index) = self.place(column, k);
        element(b[register % REGISTERS][lane], index, self.elements.bits())
    }

    /// One element of the sum.
    fn sum(self, c: u32, factors: &[(u32, u32)]) -> u32 {
        match self.elements {
            Elements::Floats { factors: format, accumulator } => {
                Sum { factors: format, accumulator }.of(c, factors.iter().copied())
            }
            Elements::Integers { bits, signed: (first, second), saturate } => {
                let number = |word: u32, signed: bool| {
                    let above = 32 - u32::from(bits);
                    if signed { (word << above).cast_signed() >> above } else { word.cast_signed() }
                };
                let products = factors.iter().map(|(a, b)| number(*a, first) * number(*b, second));
                tensor::integer_sum(c, products, saturate)
            }
        }
    }
}

pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Kept]) -> Done {
    match op.detail {
        Detail::Matrix(matrix) => multiply(warp, op, pool, matrix),
        _ if op.opcode == O::Movm => transpose(warp, op, pool),
        _ if op.opcode == O::Bmma => count_bits(warp, op, pool),
        _ if op.opcode == O::Dmma => multiply_doubles(warp, op, pool),
        _ => Ok(()),
    }
}

fn multiply(warp: &mut Warp, op: &Op, pool: &[Kept], matrix: Matrix) -> Done {
    let [a, b, c] = [op.a, op.b, op.c].map(|source| fragment(warp, pool, source));
    let halves = matches!(matrix.elements, Elements::Floats { accumulator: Format::HALF, .. });
    let count = matrix.rows / EIGHT * if halves { 1 } else { 2 };
    let mut result = [ZERO; REGISTERS];
    let mut factors = [(0, 0); 64];
    let factors = &mut factors[..matrix.depth.min(64)];
    for lane in 0..LANES {
        for (register, to) in result.iter_mut().take(count).enumerate() {
            let per_row = if halves { 1 } else { 2 };
            let row = lane / 4 + EIGHT * (register / per_row);
            let mut of = |column: usize, c: u32| {
                for (k, factors) in factors.iter_mut().enumerate() {
                    *factors = (matrix.first(&a, row, k), matrix.second(&b, column, k));
                }
                matrix.sum(c, factors)
            };
            let column = lane % 4 * 2;
            let held = c[register][lane];
            to[lane] = if halves {
                of(column, held << 16 >> 16) | of(column + 1, held >> 16) << 16
            } else {
                of(column + register % 2, held)
            };
        }
    }
    keep(warp, op, &result[..count])
}

/// BMMA.168256.AND.POPC: rows and columns of 256 bits, and how many of them are set in both.
fn count_bits(warp: &mut Warp, op: &Op, pool: &[Kept]) -> Done {
    let [a, b, c] = [op.a, op.b, op.c].map(|source| fragment(warp, pool, source));
    let mut result = c;
    for (register, to) in result.iter_mut().enumerate() {
        for (lane, sum) in to.iter_mut().enumerate() {
            let column = lane % 4 * 2 + register % 2;
            for word in 0..EIGHT {
                let one = a[word / 4 * 2 + register / 2][lane / 4 * 4 + word % 4];
                let other = b[word / 4][column * 4 + word % 4];
                *sum = sum.wrapping_add((one & other).count_ones());
            }
        }
    }
    keep(warp, op, &result)
}

/// DMMA of 8 x 8 x 4: products are added one after the other, each sum rounded.
fn multiply_doubles(warp: &mut Warp, op: &Op, pool: &[Kept]) -> Done {
    let [a, b, c] = [op.a, op.b, op.c].map(|source| fragment(warp, pool, source));
    let mut result = [ZERO; REGISTERS];
    for lane in 0..LANES {
        for half in 0..2 {
            let (row, column) = (lane / 4, lane % 4 * 2 + half);
            let mut sum = pair(c[2 * half][lane], c[2 * half + 1][lane]);
            for k in 0..4 {
                let (one, other) = (4 * row + k, 4 * column + k);
                let factors = (pair(a[0][one], a[1][one]), pair(b[0][other], b[1][other]));
                sum = double::fused(factors.0, factors.1, sum, Rounding::Nearest);
            }
            (result[2 * half][lane], result[2 * half + 1][lane]) = (low(sum), low(sum >> 32));
        }
    }
    keep(warp, op, &result)
}

/// MOVM.16.MT88: lane `4 g + t` holds elements `2 t` and `2 t + 1` of row `g`, and gets those of column `g`.
fn transpose(warp: &mut Warp, op: &Op, pool: &[Kept]) -> Done {
    let from = *warp.row(pool, op.a.row);
    let result = each(|lane| {
        let of = |row: usize| {
            let column = lane / 4;
            element(from[4 * row + column / 2], column % 2, 16)
        };
        let row = lane % 4 * 2;
        of(row) | of(row + 1) << 16
    });
    put(warp, op.d, &result, ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_a_place_of_its_own() {
        for (bits, depth) in [(16, 16), (16, 8), (8, 32), (4, 64)] {
            let elements = Elements::Integers { bits, signed: (false, false), saturate: false };
            let matrix = Matrix { rows: 16, depth, elements };
            let mut seen = std::collections::HashSet::new();
            for row in 0..8 {
                for k in 0..depth {
                    let place = matrix.place(row, k);
                    assert!(place.0 < LANES && place.1 < 2, "{place:?}");
                    assert!(seen.insert(place));
                }
            }
        }
    }
}
