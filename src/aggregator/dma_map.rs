//! A tenant's system memory: which guest-physical ranges exist, and at which bus address of the physical GPU
//! each was made reachable.
//!
//! Bus addresses of all tenants share one space (the physical GPU has one); a guest never learns them
//! ([`bus_space`](super::bus_space)). Ranges that are adjacent in guest-physical addresses, bus addresses and
//! file are joined, and a part of a range may be removed: a machine with an IOMMU maps its pages one by one,
//! and removes them in any order.

use super::bus_space::{BusSpace, Runs};
use super::dma_range::DmaRange;
use gpuvmk_chip::addr::{Gpa, Iova, PAGE_SIZE};
use gpuvmk_ordered::OrderedMap;

/// Why a range of guest memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaMapError {
    /// Empty, unaligned or wrapping.
    #[error("Guest memory {gpa}+{size:#x} is not a range of whole {PAGE_SIZE}-byte pages")]
    Shape {
        /// Its first address.
        gpa: Gpa,
        /// Size in bytes.
        size: u64,
    },
    /// Part of it is mapped.
    #[error("Guest memory {gpa}+{size:#x} overlaps memory that is mapped")]
    Overlap {
        /// Its first address.
        gpa: Gpa,
        /// Size in bytes.
        size: u64,
    },
}

/// The file behind a range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileBacking {
    /// Identity of the file.
    pub file: (u64, u64),
    /// Offset of the first byte.
    pub offset: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    range: DmaRange,
    backing: Option<FileBacking>,
}

impl Held {
    fn end(&self) -> u64 {
        self.range.gpa.0.saturating_add(self.range.size)
    }

    /// The part of it from a guest-physical address inside on.
    fn part(&self, from: u64, size: u64) -> Self {
        let into = from.saturating_sub(self.range.gpa.0);
        let iova = Iova(self.range.iova.0.saturating_add(into));
        let backing = self
            .backing
            .map(|backing| FileBacking { offset: backing.offset.saturating_add(into), file: backing.file });
        Self { range: DmaRange { gpa: Gpa(from), size, iova, ..self.range }, backing }
    }

    /// True when `next` follows in everything.
    fn goes_on_in(&self, next: &Self) -> bool {
        let follows = self.part(self.end(), next.range.size);
        self.backing.is_some() && follows.range == next.range && follows.backing == next.backing
    }
}

/// Limit of pieces that stay behind when parts of ranges are removed. Beyond it, the rest of a range is
/// removed too.
const MOST_PIECES: usize = gpuvmk_pci::dma::MAX_MAPPINGS;

/// The guest memory of one tenant.
#[derive(Debug, Default)]
pub struct DmaMap {
    ranges: OrderedMap<u64, Held>,
    bytes: u64,
    runs: Runs,
}

impl DmaMap {
    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True without any range.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All ranges, by guest-physical address.
    pub fn ranges(&self) -> impl Iterator<Item = &DmaRange> {
        self.ranges.values().map(|held| &held.range)
    }

    /// The bus addresses that its memory has.
    pub fn runs(&self) -> &Runs {
        &self.runs
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
            Some((_, last)) if last.end() > gpa.0 => Err(DmaMapError::Overlap { gpa, size }),
            _ => Ok(()),
        }
    }

    /// Bus addresses for a range that [`DmaMap::check_new`] accepted: one or several pieces in a row. `None`
    /// when there are none.
    pub fn place(&mut self, space: &mut BusSpace, gpa: Gpa, size: u64) -> Option<Vec<DmaRange>> {
        self.runs.place(space, gpa, size)
    }

    /// Gives the bus addresses of a piece back, of which nothing is held any more.
    pub fn unplace(&mut self, space: &mut BusSpace, piece: &DmaRange) {
        self.runs.release(space, piece.gpa, piece.size);
    }

    /// True when a range is adjacent to another one, so that they may be joined.
    pub fn would_join(&self, gpa: Gpa, size: u64, backing: FileBacking) -> bool {
        let before = self.ranges.range(..gpa.0).next_back().is_some_and(|(_, held)| {
            let into = gpa.0.saturating_sub(held.range.gpa.0);
            held.end() == gpa.0
                && held.backing.is_some_and(|at| {
                    at.file == backing.file && at.offset.checked_add(into) == Some(backing.offset)
                })
        });
        let after = gpa.0.checked_add(size).and_then(|end| self.ranges.get(&end)).is_some_and(|held| {
            held.backing.is_some_and(|at| {
                at.file == backing.file && backing.offset.checked_add(size) == Some(at.offset)
            })
        });
        before || after
    }

    /// Adds a range that [`DmaMap::check_new`] accepted, as one with those that it continues where it is
    /// known what it shows.
    pub fn insert(&mut self, range: DmaRange, backing: Option<FileBacking>) {
        self.bytes = self.bytes.saturating_add(range.size);
        let mut whole = Held { range, backing };
        if let Some((&start, before)) = self.ranges.range(..range.gpa.0).next_back()
            && before.goes_on_in(&whole)
        {
            let size = before.range.size.saturating_add(whole.range.size);
            whole = before.part(start, size);
        }
        if let Some(after) = self.ranges.get(&whole.end()).copied()
            && whole.goes_on_in(&after)
        {
            self.ranges.remove(&after.range.gpa.0);
            whole.range.size = whole.range.size.saturating_add(after.range.size);
        }
        self.ranges.insert(whole.range.gpa.0, whole);
    }

    /// The ranges, and parts of ranges, in `[gpa, gpa + size)`. Whole ranges where a split would exceed the
    /// limit.
    pub fn inside(&self, gpa: Gpa, size: u64) -> Vec<DmaRange> {
        let end = gpa.0.saturating_add(size);
        let below = self.ranges.range(..gpa.0).next_back().filter(|(_, held)| held.end() > gpa.0);
        let inside = below.into_iter().chain(self.ranges.range(gpa.0..end.max(gpa.0)));
        let part = |(_, held): (&u64, &Held)| {
            let (from, to) = (held.range.gpa.0.max(gpa.0), held.end().min(end));
            let splits = from > held.range.gpa.0 && to < held.end();
            if splits && self.len() >= MOST_PIECES { *held } else { held.part(from, to.saturating_sub(from)) }
        };
        inside.map(part).map(|held| held.range).collect()
    }

    /// Removes a part of a range, as returned by [`DmaMap::inside`]. Its bus addresses stay allocated.
    pub fn remove(&mut self, part: &DmaRange) {
        let Some((&start, held)) = self.ranges.range(..=part.gpa.0).next_back() else { return };
        let held = *held;
        let end = part.gpa.0.saturating_add(part.size);
        if held.end() < end {
            return;
        }
        self.bytes = self.bytes.saturating_sub(part.size);
        self.ranges.remove(&start);
        let left = (start < part.gpa.0).then(|| held.part(start, part.gpa.0.saturating_sub(start)));
        let right = (end < held.end()).then(|| held.part(end, held.end().saturating_sub(end)));
        for rest in left.into_iter().chain(right) {
            self.ranges.insert(rest.range.gpa.0, rest);
        }
    }

    /// Where `gpa` is reachable, how many bytes follow it in the same range, and whether the GPU may write.
    pub fn translate(&self, gpa: Gpa) -> Option<(Iova, u64, bool)> {
        self.range_before(gpa)?.translate(gpa)
    }

    /// The last range that starts at or before `gpa`: if any holds it, this one does.
    pub fn range_before(&self, gpa: Gpa) -> Option<&DmaRange> {
        self.ranges.range(..=gpa.0).next_back().map(|(_, held)| &held.range)
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
            map.insert(DmaRange { gpa: Gpa(*gpa), size: *size, iova: Iova(*iova), writable: true }, None);
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
    fn unmap_names_what_is_there_and_parts_of_it() {
        let map = map_of(&[(0x10000, 0x1000, 0), (0x12000, 0x4000, 0x10000)]);
        let found = |gpa, size| -> Vec<(u64, u64, u64)> {
            let parts = map.inside(Gpa(gpa), size);
            parts.iter().map(|part| (part.gpa.0, part.size, part.iova.0)).collect()
        };

        assert_eq!(found(0x10000, 0x3000), [(0x10000, 0x1000, 0), (0x12000, 0x1000, 0x10000)]);
        assert_eq!(found(0x13000, 0x1000), [(0x13000, 0x1000, 0x11000)]);
        assert_eq!(found(0x11000, 0x1000), []);
        assert_eq!(found(0, u64::MAX).len(), 2);
    }

    #[test]
    fn translation_reports_room_to_the_end_of_the_range() {
        let map = map_of(&[(0x10000, 0x4000, 0x70_0000)]);

        assert_eq!(map.translate(Gpa(0x11000)), Some((Iova(0x70_1000), 0x3000, true)));
        assert_eq!(map.translate(Gpa(0x14000)), None);
        assert_eq!(map.translate(Gpa(0xffff)), None);
    }

    /// A table and bus addresses, driven as the aggregator does.
    struct Tenant {
        map: DmaMap,
        space: BusSpace,
    }

    impl Tenant {
        fn new() -> Self {
            Self { map: DmaMap::default(), space: BusSpace::new(Iova(0x10_0000), 40, 21) }
        }

        fn map(&mut self, gpa: u64, size: u64, file: u64, offset: u64) {
            self.map.check_new(Gpa(gpa), size).unwrap();
            for piece in self.map.place(&mut self.space, Gpa(gpa), size).unwrap() {
                let into = piece.gpa.0 - gpa;
                self.map.insert(piece, Some(FileBacking { file: (1, file), offset: offset + into }));
            }
        }

        fn unmap(&mut self, gpa: u64, size: u64) {
            for part in self.map.inside(Gpa(gpa), size) {
                self.map.remove(&part);
                self.map.unplace(&mut self.space, &part);
            }
        }
    }

    #[test]
    fn pages_of_one_file_become_one_range_and_go_in_any_order() {
        let mut tenant = Tenant::new();
        let order = |step: u64| (0..1000_u64).map(move |n| n * step % 1000);
        for page in order(7) {
            tenant.map(0xffd0_0000 + page * PAGE_SIZE, PAGE_SIZE, 1, page * PAGE_SIZE);
        }
        assert_eq!((tenant.map.len(), tenant.map.bytes()), (1, 1000 * PAGE_SIZE));
        // The same place in another file is another range.
        tenant.map(0xffd0_0000 + 1000 * PAGE_SIZE, PAGE_SIZE, 2, 1000 * PAGE_SIZE);
        assert_eq!(tenant.map.len(), 2);

        for page in order(13) {
            tenant.unmap(0xffd0_0000 + page * PAGE_SIZE, PAGE_SIZE);
        }
        tenant.unmap(0, u64::MAX);
        assert!(tenant.map.is_empty() && tenant.map.runs().bytes() == 0);
        assert_eq!(tenant.space, Tenant::new().space);
    }

    #[test]
    fn blocks_of_a_section_are_one_range_that_goes_with_its_gaps() {
        const BLOCK: u64 = 2 << 20;
        let mut tenant = Tenant::new();
        for block in 0..512 {
            tenant.map((1 << 32) + block * BLOCK, BLOCK, 1, block * BLOCK);
        }
        assert_eq!(tenant.map.len(), 1);
        tenant.unmap((1 << 32) + 7 * BLOCK, BLOCK);

        tenant.unmap(1 << 32, 4096 * BLOCK);

        assert!(tenant.map.is_empty());
    }

    proptest! {
        /// Every page has a distinct bus address, congruent to its guest-physical one, for as long as it is
        /// mapped.
        #[test]
        fn table_agrees_with_a_page_array(steps in prop::collection::vec(
            (any::<bool>(), 0_u64..2048, 1_u64..700, 0_u64..2), 1..60))
        {
            let mut tenant = Tenant::new();
            let mut model: OrderedMap<u64, u64> = OrderedMap::new();
            for (map, page, pages, file) in steps {
                let (gpa, size) = (page * PAGE_SIZE, pages * PAGE_SIZE);
                let free = model.range(page..page + pages).next().is_none();
                if map && free {
                    tenant.map(gpa, size, file, gpa);
                    for page in page..page + pages {
                        let (iova, _, _) = tenant.map.translate(Gpa(page * PAGE_SIZE)).unwrap();
                        prop_assert_eq!(iova.0 % (2 << 20), page * PAGE_SIZE % (2 << 20));
                        model.insert(page, iova.0);
                    }
                } else if !map {
                    tenant.unmap(gpa, size);
                    model.retain(|at, _| !(page..page + pages).contains(at));
                }
                let mut all: Vec<u64> = model.values().copied().collect();
                all.sort_unstable();
                all.dedup();
                prop_assert_eq!(all.len(), model.len(), "a bus address was given twice");
            }
            for page in 0..3000 {
                let there = tenant.map.translate(Gpa(page * PAGE_SIZE)).map(|(iova, _, _)| iova.0);
                prop_assert_eq!(there, model.get(&page).copied());
            }
            tenant.unmap(0, u64::MAX);
            prop_assert_eq!(tenant.space, Tenant::new().space);
        }
    }
}
