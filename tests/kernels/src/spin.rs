//! How the kernel `spin` is launched where its time is measured: alike by everybody who compares.

use crate::launch::Size3;

/// Enough blocks to fill every SM of the largest Hopper.
pub const GRID: Size3 = Size3(132 * 8, 1, 1);
/// Threads of a block.
pub const BLOCK: Size3 = Size3(256, 1, 1);
/// All threads; each leaves a word.
pub const THREADS: u32 = GRID.0 * BLOCK.0;
/// Steps of each thread: a few milliseconds.
pub const ROUNDS: u32 = 100_000;

/// What a thread leaves: the kernel's linear congruential generator after `rounds` steps from `seed` (with
/// the thread's number in it), by squaring the step.
pub const fn result(seed: u32, rounds: u32) -> u32 {
    let (mut factor, mut addend) = (1_664_525_u32, 1_013_904_223_u32);
    let (mut value, mut left) = (seed, rounds);
    while left > 0 {
        if left & 1 == 1 {
            value = value.wrapping_mul(factor).wrapping_add(addend);
        }
        addend = addend.wrapping_mul(factor).wrapping_add(addend);
        factor = factor.wrapping_mul(factor);
        left >>= 1;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squared_steps_give_what_single_steps_give() {
        for rounds in [0, 1, 2, 7, 100] {
            let slowly = (0..rounds)
                .fold(99_u32, |value, _| value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
            assert_eq!(result(99, rounds), slowly);
        }
    }
}
