//! A tenant's system memory: which guest-physical ranges exist, and at which bus address of the physical GPU
//! each was made reachable.
//!
//! Bus addresses of all tenants share one space (the physical GPU has one), so ranges are given out by
//! [`IovaAllocator`]; a guest never learns them. A bus address is congruent to its guest-physical address
//! modulo the physical GPU's largest page, so that large pages stay large pages.

use std::collections::BTreeMap;

use crate::addr::{Gpa, Iova, PAGE_SIZE};

/// Guest-physical and bus addresses agree modulo this at least: the large pages of the host's CPU and IOMMU.
const LEAST_CONGRUENCE: u64 = 2 << 20;

/// Gives out bus-address ranges.
#[derive(Debug)]
pub struct IovaAllocator {
    first: u64,
    end: u64,
    congruence: u64,
    /// Ranges in use: start and bytes.
    used: BTreeMap<u64, u64>,
}

impl IovaAllocator {
    /// Addresses from `first` to below 2 to `bits`, for a GPU whose largest page has 2 to `page_shift` bytes.
    pub fn new(first: Iova, bits: u8, page_shift: u8) -> Self {
        let power = |bits: u8| 1_u64.checked_shl(u32::from(bits));
        let end = power(bits).unwrap_or(u64::MAX);
        let congruence = power(page_shift).unwrap_or(0).max(LEAST_CONGRUENCE);
        Self { first: first.0, end, congruence, used: BTreeMap::new() }
    }

    /// A free range of `size` bytes that is congruent to `like`, first fit.
    pub fn take(&mut self, size: u64, like: Gpa) -> Option<Iova> {
        if size == 0 {
            return None;
        }
        let step = self.congruence;
        let phase = like.0 % step;
        let fit = |from: u64| -> Option<u64> {
            let base = from / step * step;
            let candidate = base.checked_add(phase)?;
            if candidate >= from { Some(candidate) } else { candidate.checked_add(step) }
        };
        let mut candidate = fit(self.first)?;
        for (start, used) in &self.used {
            if candidate.checked_add(size)? <= *start {
                break;
            }
            candidate = candidate.max(fit(start.checked_add(*used)?)?);
        }
        if candidate.checked_add(size)? > self.end {
            return None;
        }
        self.used.insert(candidate, size);
        Some(Iova(candidate))
    }

    /// Takes back the range that starts at `iova`.
    pub fn give_back(&mut self, iova: Iova) {
        self.used.remove(&iova.0);
    }
}

/// One range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRange {
    /// First guest-physical address.
    pub gpa: Gpa,
    /// Bytes.
    pub size: u64,
    /// Where the physical GPU finds it.
    pub iova: Iova,
    /// True when the GPU may write.
    pub writable: bool,
}

impl DmaRange {
    /// Where `gpa` is reachable, how many bytes follow it in this range, and whether the GPU may write. `None` outside.
    pub fn translate(&self, gpa: Gpa) -> Option<(Iova, u64, bool)> {
        let into = gpa.0.checked_sub(self.gpa.0)?;
        let room = self.size.checked_sub(into).filter(|room| *room > 0)?;
        Some((self.iova.checked_add(into)?, room, self.writable))
    }
}

/// Why a range of guest memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaMapError {
    /// Empty, unaligned or wrapping.
    #[error("Guest memory {gpa}+{size:#x} is not a range of whole {PAGE_SIZE}-byte pages")]
    Shape {
        /// First address.
        gpa: Gpa,
        /// Bytes.
        size: u64,
    },
    /// Part of it is mapped.
    #[error("Guest memory {gpa}+{size:#x} overlaps memory that is mapped")]
    Overlap {
        /// First address.
        gpa: Gpa,
        /// Bytes.
        size: u64,
    },
    /// Not one or several whole ranges.
    #[error("Guest memory {gpa}+{size:#x} is not a whole number of mapped ranges")]
    NotWhole {
        /// First address.
        gpa: Gpa,
        /// Bytes.
        size: u64,
    },
}

/// The guest memory of one tenant.
#[derive(Debug, Default)]
pub struct DmaMap {
    ranges: BTreeMap<u64, DmaRange>,
}

impl DmaMap {
    /// Ranges held.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True without any range.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.ranges.values().fold(0, |sum, range| sum.saturating_add(range.size))
    }

    /// All ranges, by guest-physical address.
    pub fn ranges(&self) -> impl Iterator<Item = &DmaRange> {
        self.ranges.values()
    }

    /// Checks that `[gpa, gpa + size)` could be added.
    ///
    /// # Errors
    /// Malformed, or it overlaps.
    pub fn check_new(&self, gpa: Gpa, size: u64) -> Result<(), DmaMapError> {
        let end = gpa.0.checked_add(size).ok_or(DmaMapError::Shape { gpa, size })?;
        if size == 0 || !gpa.is_aligned(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(DmaMapError::Shape { gpa, size });
        }
        match self.ranges.range(..end).next_back() {
            Some((_, last)) if last.gpa.0.saturating_add(last.size) > gpa.0 => {
                Err(DmaMapError::Overlap { gpa, size })
            }
            _ => Ok(()),
        }
    }

    /// Adds a range that [`DmaMap::check_new`] accepted.
    pub fn insert(&mut self, range: DmaRange) {
        self.ranges.insert(range.gpa.0, range);
    }

    /// The whole ranges that make up `[gpa, gpa + size)` (gaps between them are allowed).
    ///
    /// # Errors
    /// None lies there, or one would be split.
    pub fn whole_ranges(&self, gpa: Gpa, size: u64) -> Result<Vec<DmaRange>, DmaMapError> {
        let end = gpa.0.saturating_add(size);
        let split_before = self
            .ranges
            .range(..gpa.0)
            .next_back()
            .is_some_and(|(_, before)| before.gpa.0.saturating_add(before.size) > gpa.0);
        let found: Vec<_> = self.ranges.range(gpa.0..end.max(gpa.0)).map(|(_, range)| *range).collect();
        let split_after = found.last().is_some_and(|last| last.gpa.0.saturating_add(last.size) > end);
        if found.is_empty() || split_before || split_after {
            return Err(DmaMapError::NotWhole { gpa, size });
        }
        Ok(found)
    }

    /// Forgets the range that starts at `gpa`.
    pub fn remove(&mut self, gpa: Gpa) -> Option<DmaRange> {
        self.ranges.remove(&gpa.0)
    }

    /// Where `gpa` is reachable, how many bytes follow it in the same range, and whether the GPU may write.
    pub fn translate(&self, gpa: Gpa) -> Option<(Iova, u64, bool)> {
        self.range_before(gpa)?.translate(gpa)
    }

    /// The last range that starts at or before `gpa`: if any holds it, this one does.
    pub fn range_before(&self, gpa: Gpa) -> Option<&DmaRange> {
        self.ranges.range(..=gpa.0).next_back().map(|(_, range)| range)
    }

    /// The first mapped address above `gpa`, where a walk over a gap goes on.
    pub fn next_range_after(&self, gpa: Gpa) -> Option<Gpa> {
        let from = gpa.0.checked_add(1)?;
        self.ranges.range(from..).next().map(|(start, _)| Gpa(*start))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map_of(ranges: &[(u64, u64, u64)]) -> DmaMap {
        let mut map = DmaMap::default();
        for (gpa, size, iova) in ranges {
            map.insert(DmaRange { gpa: Gpa(*gpa), size: *size, iova: Iova(*iova), writable: true });
        }
        map
    }

    #[test]
    fn overlapping_range_is_refused_on_every_side() {
        let map = map_of(&[(0x10000, 0x4000, 0x10_0000)]);

        for gpa in [0xf000, 0x10000, 0x11000, 0x13000] {
            assert!(matches!(map.check_new(Gpa(gpa), 0x2000), Err(DmaMapError::Overlap { .. })), "{gpa:#x}");
        }
        assert_eq!(map.check_new(Gpa(0xe000), 0x2000), Ok(()));
        assert_eq!(map.check_new(Gpa(0x14000), 0x2000), Ok(()));
    }

    #[test]
    fn malformed_range_is_refused() {
        let map = DmaMap::default();

        for (gpa, size) in [(0, 0), (0x800, 0x1000), (0, 0x800), (u64::MAX - 0xfff, 0x2000)] {
            assert!(matches!(map.check_new(Gpa(gpa), size), Err(DmaMapError::Shape { .. })));
        }
    }

    #[test]
    fn unmap_takes_whole_ranges_only() {
        let map = map_of(&[(0x10000, 0x1000, 0), (0x12000, 0x2000, 0x10000)]);

        assert_eq!(map.whole_ranges(Gpa(0x10000), 0x4000).unwrap().len(), 2);
        assert!(map.whole_ranges(Gpa(0x10000), 0x3000).is_err());
        assert!(map.whole_ranges(Gpa(0x13000), 0x1000).is_err());
        assert!(map.whole_ranges(Gpa(0x11000), 0x1000).is_err());
        assert_eq!(map.whole_ranges(Gpa(0), u64::MAX).unwrap().len(), 2);
    }

    #[test]
    fn translation_reports_room_to_the_end_of_the_range() {
        let map = map_of(&[(0x10000, 0x4000, 0x70_0000)]);

        assert_eq!(map.translate(Gpa(0x11000)), Some((Iova(0x70_1000), 0x3000, true)));
        assert_eq!(map.translate(Gpa(0x14000)), None);
        assert_eq!(map.translate(Gpa(0xffff)), None);
    }

    #[test]
    fn bus_addresses_are_congruent_and_reused() {
        let mut iovas = IovaAllocator::new(Iova(0x10_0000), 40, 17);

        let a = iovas.take(0x1000, Gpa(0x12_3000)).unwrap();
        let b = iovas.take(1 << 30, Gpa(0)).unwrap();
        iovas.give_back(a);
        let c = iovas.take(0x1000, Gpa(0x92_3000)).unwrap();

        assert_eq!(a.0 % LEAST_CONGRUENCE, 0x12_3000);
        assert_eq!(b.0 % LEAST_CONGRUENCE, 0);
        assert_eq!(c, a);
    }

    #[test]
    fn bus_addresses_run_out_cleanly() {
        let mut iovas = IovaAllocator::new(Iova(0), 32, 17);

        assert!(iovas.take(1 << 33, Gpa(0)).is_none());
        assert!(iovas.take(u64::MAX, Gpa(0x1000)).is_none());
        assert!(iovas.take(1 << 32, Gpa(0)).is_some());
        assert!(iovas.take(0x1000, Gpa(0)).is_none());
    }

    proptest! {
        #[test]
        fn ranges_given_out_never_overlap(requests in prop::collection::vec(
            (1_u64..0x4_0000, 0_u64..0x4000, any::<bool>()), 1..40))
        {
            let mut iovas = IovaAllocator::new(Iova(0x1000), 36, 17);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (pages, gpa_page, give_back) in requests {
                if give_back && let Some((start, _)) = held.pop() {
                    iovas.give_back(Iova(start));
                }
                let (size, gpa) = (pages * PAGE_SIZE, gpa_page * PAGE_SIZE);
                if let Some(iova) = iovas.take(size, Gpa(gpa)) {
                    prop_assert_eq!(iova.0 % LEAST_CONGRUENCE, gpa % LEAST_CONGRUENCE);
                    prop_assert!(iova.0 >= 0x1000 && iova.0 + size <= 1 << 36);
                    for (start, len) in &held {
                        prop_assert!(iova.0 + size <= *start || start + len <= iova.0);
                    }
                    held.push((iova.0, size));
                }
            }
        }
    }
}
