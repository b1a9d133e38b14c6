//! Rows: one word of each of a warp's 32 lanes.

/// Lanes of a warp.
pub const LANES: usize = 32;

/// One word a lane.
pub type Row = [u32; LANES];

/// A row that is kept, and begins a line of the processor's cache: vectors are loaded from it, and stored to
/// it, without two lines of it being touched.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Kept(pub Row);

/// The row of zeros.
pub static ZERO: Row = [0; LANES];

/// All lanes, as a mask.
pub const ALL: u32 = u32::MAX;

/// Lanes of a mask, from the lowest on.
#[derive(Clone, Copy, Debug)]
pub struct Lanes(pub u32);

impl Iterator for Lanes {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let lane = self.0.trailing_zeros() as usize;
        (self.0 != 0).then(|| {
            self.0 &= self.0 - 1;
            lane
        })
    }
}

/// The mask of `count` lanes from `first` on.
#[inline(always)]
pub const fn span(first: usize, count: usize) -> u32 {
    let ones = if count >= LANES { ALL } else { (1 << count) - 1 };
    ones << (first % LANES)
}

/// A row of what a function gives for each lane.
#[inline(always)]
pub fn each(mut of: impl FnMut(usize) -> u32) -> Row {
    let mut row = [0; LANES];
    for (lane, word) in row.iter_mut().enumerate() {
        *word = of(lane);
    }
    row
}

/// Two rows of the halves of what a function gives for each lane.
#[inline(always)]
pub fn each_wide(mut of: impl FnMut(usize) -> u64) -> [Row; 2] {
    let (mut first, mut second) = ([0; LANES], [0; LANES]);
    for (lane, (first, second)) in first.iter_mut().zip(&mut second).enumerate() {
        let value = of(lane);
        *first = low(value);
        *second = low(value >> 32);
    }
    [first, second]
}

/// The mask of lanes for which a function holds.
#[inline(always)]
pub fn mask(mut of: impl FnMut(usize) -> bool) -> u32 {
    let mut mask = 0;
    for lane in 0..LANES {
        mask |= u32::from(of(lane)) << lane;
    }
    mask
}

/// Takes the lanes of a mask from `from`.
#[inline(always)]
pub fn blend(to: &mut Row, from: &Row, mask: u32) {
    if mask == ALL {
        *to = *from;
        return;
    }
    for lane in 0..LANES {
        let keep = (mask >> lane & 1).wrapping_sub(1);
        to[lane] = to[lane] & keep | from[lane] & !keep;
    }
}

/// The lower half.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the lower half is asked for")]
pub const fn low(value: u64) -> u32 {
    value as u32
}

/// `high:low`.
#[inline(always)]
pub const fn pair(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}
