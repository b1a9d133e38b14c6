//! The words of a warp's state that BMOV moves beside convergence barriers.
//!
//! NVIDIA's code around a call of a function of its driver's (`printf`) reads them all, has the lanes that do
//! not call count as ended, and puts everything back when the function returns. NVIDIA's start of a
//! cooperative grid has all lanes run that have not ended. What they hold was seen on an H200
//! (`tests/sass/tests/shapes.tsv.gz`).

/// Words of a warp's state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Words {
    /// Lanes that count as ended, and have not.
    pub hidden: u32,
}

/// State of a lane that runs, or can.
pub(super) const RUNS: u8 = 1;
/// State of a lane that has let others run.
pub(super) const YIELDED: u8 = 3;
/// State of a lane that waits for lanes of a mask.
pub(super) const GATHERS: u8 = 11;
/// State of a lane that waits at the first convergence barrier.
const WAITS: u8 = 16;

/// State of a lane that waits at a convergence barrier.
pub(super) const fn waits_at(barrier: u8) -> u8 {
    WAITS + barrier % WAITS
}

/// Where OPT_STACK has how many entries it has, the bits of an entry, and how many there is room for.
const COUNT: u32 = 25;
const ENTRY: u32 = 5;
const MOST: usize = 5;

/// What OPT_STACK says of groups that did not go on, longest waiting first: how many they are, and the first
/// lane of each.
pub(super) fn stack(masks: impl Iterator<Item = u32>) -> u32 {
    let entries = masks.take(MOST).zip(0_u32..);
    entries.fold(0, |stack, (mask, index)| {
        (stack | (mask.trailing_zeros() % LANES) << (index * ENTRY)) + (1 << COUNT)
    })
}

/// Lanes of a warp.
const LANES: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_is_that_of_an_h200() {
        assert_eq!(stack([].into_iter()), 0);
        assert_eq!(stack([0xcccc_cccc].into_iter()), 0x0200_0002);
        assert_eq!(stack([0xaaaa_aaaa, 0x4444_4444, 0x1010_1010].into_iter()), 0x0600_1041);
        assert_eq!(stack([0x8888_8888, 0x2020_2020].into_iter()), 0x0400_00a3);
        assert_eq!(stack([u32::MAX; 9].into_iter()), 0x0a00_0000);
    }
}
