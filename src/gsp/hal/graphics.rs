//! What the graphics engine has.

/// Graphics processing clusters that a mask has bits for.
pub const MOST_GPCS: usize = 32;

/// The clusters of a whole chip. Cards of it have some of them switched off, each card others; drivers size
/// their scratch memory by them, so that more than a card has do no harm.
///
/// Where the numbers are from (a texture cluster has two multiprocessors, which is what cards are sold by):
///
/// * NVIDIA's white papers on each architecture: TU102, TU104, TU106, GA102, GA104, GH100, AD102 to AD104,
///   GB202
/// * clusters as the press told them: TU116 (TechPowerUp on the GTX 1660 Ti), GA103 (io-tech.fi, 28 January
///   2022), GA106 beside GA104 (on RTX 3060s with a GA104, September 2021), AD106 (SemiAnalysis, June 2022),
///   GB203 to GB207 (kopite7kimi, 11 June 2024; sold since with as many multiprocessors)
/// * assumed, the multiprocessors of the largest card shared out: TU117 (16), GA107 (20), AD107 (24, in
///   another number of clusters than GB207, says kopite7kimi on 2 June 2024)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphicsUnits {
    /// Texture processing clusters of each graphics processing cluster, by its number.
    pub tpcs: &'static [u8],
}

impl GraphicsUnits {
    /// A bit for each graphics processing cluster.
    pub fn gpc_mask(self) -> u32 {
        ones(self.tpcs.len())
    }

    /// A bit for each texture processing cluster of the graphics processing cluster `gpc`.
    pub fn tpc_mask(self, gpc: u32) -> Option<u32> {
        let tpcs = self.tpcs.get(usize::try_from(gpc).ok()?)?;
        Some(ones((*tpcs).into()))
    }

    /// The same for all numbers of clusters, 0 for those that there are not.
    pub fn tpc_masks(self) -> [u32; MOST_GPCS] {
        let mut masks = [0; MOST_GPCS];
        for (mask, tpcs) in masks.iter_mut().zip(self.tpcs) {
            *mask = ones((*tpcs).into());
        }
        masks
    }
}

/// So many ones from bit 0 on, 32 at most.
fn ones(count: usize) -> u32 {
    u32::try_from(count)
        .ok()
        .and_then(|count| 1u32.checked_shl(count))
        .map_or(u32::MAX, |end| end.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::super::tests::ALL;
    use super::*;

    #[test]
    fn masks_have_a_bit_for_each_cluster() {
        let units = GraphicsUnits { tpcs: &[6, 6, 4] };
        assert_eq!(units.gpc_mask(), 0b111);
        assert_eq!([0, 1, 2, 3].map(|gpc| units.tpc_mask(gpc)), [Some(0x3f), Some(0x3f), Some(0xf), None]);
        assert_eq!(units.tpc_masks()[..4], [0x3f, 0x3f, 0xf, 0]);
        assert_eq!((ones(0), ones(32), ones(40)), (0, u32::MAX, u32::MAX));
    }

    /// Two multiprocessors a texture cluster: no card of a chip may have more than the chip.
    #[test]
    fn chips_have_what_their_largest_cards_have() {
        for (name, gpcs, multiprocessors) in [
            ("TU102", 6, 72),
            ("TU104", 6, 48),
            ("TU106", 3, 36),
            ("TU116", 3, 24),
            ("TU117", 2, 16),
            ("GA102", 7, 84),
            ("GA104", 6, 48),
            ("GA103", 6, 60),
            ("GA106", 3, 30),
            ("GA107", 2, 20),
            ("AD102", 12, 144),
            ("AD103", 7, 80),
            ("AD104", 5, 60),
            ("AD106", 3, 36),
            ("AD107", 3, 24),
            ("GH100", 8, 144),
            ("GB202", 12, 192),
            ("GB203", 7, 84),
            ("GB205", 5, 50),
            ("GB206", 3, 36),
            ("GB207", 2, 20),
        ] {
            let units = ALL.iter().find(|hal| hal.short_name == name).unwrap().graphics;
            let tpcs: u32 = units.tpcs.iter().map(|tpcs| u32::from(*tpcs)).sum();
            assert_eq!((units.tpcs.len(), 2 * tpcs), (gpcs, multiprocessors), "{name}");
        }
        assert!(ALL.iter().all(|hal| !hal.graphics.tpcs.is_empty() && hal.graphics.tpcs.len() <= MOST_GPCS));
    }
}
