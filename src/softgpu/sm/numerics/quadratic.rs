//! Tables of quadratics:
//!
//! `y = floor(c0 + c1 * x / 2^w + c2 * square(x) / 2^2w)` in units of the result's last place, where `x` is
//! the argument's low `w` bits, and its high ones choose the row. The square is made of products of single
//! bits, those in low columns left out.

/// Rows of quadratics.
pub(super) struct Table<const ROWS: usize> {
    /// Bits of the argument below those that choose the row.
    pub low_bits: u32,
    /// Columns of the square that are left out.
    pub dropped: u32,
    /// Bits of `c0` below the unit of the result.
    pub grid: u32,
    /// Added to all, in units of 2^-(2w + 1).
    pub bias: i64,
    /// 1, or 0 where `c2` counts halves.
    pub c2_shift: u32,
    pub c0: [u32; ROWS],
    pub c1: [i32; ROWS],
    pub c2: [i32; ROWS],
}

impl<const ROWS: usize> Table<ROWS> {
    /// Bits below the unit of the result in what [`Self::sum`] gives.
    pub const fn fine_bits(&self) -> u32 {
        2 * self.low_bits + 1
    }

    /// The quadratic at an argument of `low_bits` and the row's bits.
    pub fn sum(&self, argument: u32) -> i64 {
        let row = (argument >> self.low_bits) as usize;
        self.sum_of_row(row, argument)
    }

    /// That of a row, at the argument's `low_bits`.
    pub fn sum_of_row(&self, row: usize, argument: u32) -> i64 {
        let row = row % ROWS;
        let x = argument % (1 << self.low_bits);
        let constant = i64::from(self.c0[row]) << (self.fine_bits() - self.grid);
        let linear = (i64::from(self.c1[row]) * i64::from(x)) << (self.low_bits + 1);
        let square = (i64::from(self.c2[row]) * square(x, self.dropped)) << self.c2_shift;
        constant + self.bias + linear + square
    }

    /// The same in whole units, cut.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "25 bits, not negative")]
    pub fn at(&self, argument: u32) -> u32 {
        (self.sum(argument) >> self.fine_bits()) as u32
    }
}

/// The square of `x` from products of its bits: those of `i` and `j` lie in column `i + j + 1`, a bit's own
/// in column `2i`; columns below `dropped` are left out.
pub(super) fn square(x: u32, dropped: u32) -> i64 {
    let mut sum = 0;
    let mut left = x;
    while left != 0 {
        let bit = left.trailing_zeros();
        left &= left - 1;
        // The bit's own product, and those with the bits above.
        if 2 * bit >= dropped {
            sum += 1_i64 << (2 * bit);
        }
        let first = dropped.saturating_sub(bit + 1).max(bit + 1);
        if first < 32 {
            sum += i64::from(left >> first << first) << (bit + 1);
        }
    }
    sum
}
