//! What a graphics engine is made of: graphics processing clusters (GPC) of texture processing clusters
//! (TPC), which have two multiprocessors each since Pascal.

/// Graphics processing clusters that a mask has bits for.
pub const MOST_GPCS: usize = 32;

/// Texture processing clusters of each graphics processing cluster, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextureClusters([u8; MOST_GPCS]);

impl TextureClusters {
    /// So many in each cluster from number 0 on; what is beyond [`MOST_GPCS`] does not count.
    #[must_use]
    pub const fn of(tpcs: &[u8]) -> Self {
        let mut all = [0; MOST_GPCS];
        let mut from = tpcs;
        let mut to = all.as_mut_slice();
        while let (Some((tpcs, others)), Some((place, rest))) = (from.split_first(), to.split_first_mut()) {
            *place = *tpcs;
            (from, to) = (others, rest);
        }
        Self(all)
    }

    /// The numbers, 0 for clusters that there are not.
    #[must_use]
    pub const fn counts(self) -> [u8; MOST_GPCS] {
        self.0
    }

    /// A bit for each graphics processing cluster.
    #[must_use]
    pub fn gpc_mask(self) -> u32 {
        (0..).zip(self.0).filter(|(_, tpcs)| *tpcs > 0).fold(0, |mask, (gpc, _)| mask | 1 << gpc)
    }

    /// A bit for each texture processing cluster of the graphics processing cluster `gpc`.
    #[must_use]
    pub fn tpc_mask(self, gpc: u32) -> Option<u32> {
        let tpcs = self.0.get(usize::try_from(gpc).ok()?)?;
        (*tpcs > 0).then(|| ones(*tpcs))
    }

    /// The same for all numbers of clusters, 0 for those that there are not.
    #[must_use]
    pub fn tpc_masks(self) -> [u32; MOST_GPCS] {
        self.0.map(ones)
    }

    /// Texture processing clusters in all.
    #[must_use]
    pub fn total(self) -> u32 {
        self.0.iter().map(|tpcs| u32::from(*tpcs)).sum()
    }
}

/// So many ones from bit 0 on, 32 at most.
fn ones(count: u8) -> u32 {
    1_u32.checked_shl(count.into()).map_or(u32::MAX, |end| end.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_a_bit_for_each_cluster() {
        let units = TextureClusters::of(&[6, 6, 0, 4]);
        assert_eq!((units.gpc_mask(), units.total()), (0b1011, 16));
        assert_eq!([0, 1, 2, 3].map(|gpc| units.tpc_mask(gpc)), [Some(0x3f), Some(0x3f), None, Some(0xf)]);
        assert_eq!(units.tpc_mask(77), None);
        assert_eq!(units.tpc_masks()[..5], [0x3f, 0x3f, 0, 0xf, 0]);
        assert_eq!((ones(0), ones(32), ones(40)), (0, u32::MAX, u32::MAX));
        assert_eq!(TextureClusters::of(&[1; 40]).total(), 32, "no mask has more");
    }
}
