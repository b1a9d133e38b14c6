//! VRAM partitions: which range of the physical GPU's memory a tenant owns, and the one conversion from a
//! tenant's VRAM offsets to hardware's.
//!
//! A partition is scrubbed before it is given back, or before it is given to the next tenant (see
//! [`crate::ScrubPolicy`]). One that could not be scrubbed is never given back.

use gpuvmk_chip::addr::{GuestVram, HostVram};
use gpuvmk_ordered::OrderedMap;

/// A tenant's range of VRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    start: HostVram,
    size: u64,
}

impl Partition {
    /// First byte on the physical GPU.
    pub const fn start(&self) -> HostVram {
        self.start
    }

    /// Size in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Where `size` bytes at `offset` lie on the physical GPU; `None` unless all of them are in the
    /// partition.
    pub fn translate(&self, offset: GuestVram, size: u64) -> Option<HostVram> {
        let end = offset.0.checked_add(size)?;
        if end > self.size {
            return None;
        }
        self.start.checked_add(offset.0)
    }

    /// How many bytes from `offset` to the partition's end; 0 outside.
    pub const fn room_after(&self, offset: GuestVram) -> u64 {
        self.size.saturating_sub(offset.0)
    }
}

/// Gives out partitions of the tenants' VRAM, first fit.
#[derive(Debug)]
pub struct VramAllocator {
    granule: u64,
    /// Free ranges: start and bytes; neighbours are always merged.
    free: OrderedMap<u64, u64>,
}

impl VramAllocator {
    /// All of `[start, start + size)`, cut to whole granules, is free.
    pub fn new(start: HostVram, size: u64, granule: u64) -> Self {
        let granule = granule.max(1);
        let mut free = OrderedMap::new();
        let end = start.0.saturating_add(size);
        let first = start.0.checked_next_multiple_of(granule).unwrap_or(end);
        let usable = end.saturating_sub(first) / granule * granule;
        if usable > 0 {
            free.insert(first, usable);
        }
        Self { granule, free }
    }

    /// Partitions are multiples of this.
    pub const fn granule(&self) -> u64 {
        self.granule
    }

    /// Bytes of the largest partition that could be had.
    pub fn largest(&self) -> u64 {
        self.free.values().copied().max().unwrap_or(0)
    }

    /// How many partitions of at least `size` bytes could be had, all of them together.
    pub fn count_of(&self, size: u64) -> u64 {
        let Some(size) = size.max(1).checked_next_multiple_of(self.granule) else { return 0 };
        self.free.values().map(|room| room / size).sum()
    }

    /// Takes at least `size` bytes, rounded up to granules.
    pub fn take(&mut self, size: u64) -> Option<Partition> {
        let size = size.max(1).checked_next_multiple_of(self.granule)?;
        let (start, room) =
            self.free.iter().find(|(_, room)| **room >= size).map(|(start, room)| (*start, *room))?;
        self.free.remove(&start);
        let rest = room.saturating_sub(size);
        if rest > 0 {
            self.free.insert(start.saturating_add(size), rest);
        }
        Some(Partition { start: HostVram(start), size })
    }

    /// Takes a scrubbed partition back.
    pub fn give_back(&mut self, partition: Partition) {
        let mut start = partition.start.0;
        let mut size = partition.size;
        let before = self.free.range(..start).next_back().map(|(s, n)| (*s, *n));
        if let Some((before_start, before_size)) = before
            && before_start.saturating_add(before_size) == start
        {
            self.free.remove(&before_start);
            start = before_start;
            size = size.saturating_add(before_size);
        }
        if let Some(after_size) = self.free.remove(&start.saturating_add(size)) {
            size = size.saturating_add(after_size);
        }
        self.free.insert(start, size);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn allocator() -> VramAllocator {
        VramAllocator::new(HostVram(64 * MIB), 256 * MIB, 16 * MIB)
    }

    #[test]
    fn partitions_are_rounded_to_granules_and_disjoint() {
        let mut vram = allocator();

        let a = vram.take(17 * MIB).unwrap();
        let b = vram.take(16 * MIB).unwrap();

        assert_eq!((a.start(), a.size()), (HostVram(64 * MIB), 32 * MIB));
        assert_eq!((b.start(), b.size()), (HostVram(96 * MIB), 16 * MIB));
    }

    #[test]
    fn returned_partitions_merge_with_both_neighbours() {
        let mut vram = allocator();
        let parts: Vec<_> = (0..16).map(|_| vram.take(1).unwrap()).collect();
        assert_eq!(vram.take(1), None);

        for i in [1, 3, 2, 0] {
            vram.give_back(parts[i]);
        }

        assert_eq!(vram.largest(), 64 * MIB);
    }

    #[test]
    fn requests_beyond_the_address_space_are_refused() {
        let mut vram = allocator();

        assert_eq!(vram.take(u64::MAX), None);
        assert_eq!(vram.take(257 * MIB), None);
        assert_eq!(vram.largest(), 256 * MIB);
    }

    #[test]
    fn a_range_too_small_for_a_granule_offers_nothing() {
        let vram = VramAllocator::new(HostVram(MIB), 17 * MIB, 16 * MIB);

        assert_eq!(vram.largest(), 0);
    }

    #[test]
    fn translation_ends_with_the_partition() {
        let p = allocator().take(16 * MIB).unwrap();

        assert_eq!(p.translate(GuestVram(16 * MIB - 4096), 4096), Some(HostVram(80 * MIB - 4096)));
        assert_eq!(p.translate(GuestVram(16 * MIB - 4096), 4097), None);
        assert_eq!(p.translate(GuestVram(u64::MAX), 2), None);
        assert_eq!(p.translate(GuestVram(16 * MIB), 1), None);
    }

    /// Every allocator of up to 12 units, granules of 1 to 4 units, and every three requests of it, given
    /// back in every order.
    #[test]
    fn small_allocators_never_overlap_and_lose_nothing() {
        const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let sizes = |total: u64| (0..=total + 1).flat_map(move |a| (0..=total + 1).map(move |b| (a, b)));
        for (start, total, granule) in
            (0..4).flat_map(|s| (0..12).flat_map(move |t| (1..=4).map(move |g| (s, t, g))))
        {
            for ((a, b), order) in sizes(total).flat_map(|pair| ORDERS.map(|order| (pair, order))) {
                let mut vram = VramAllocator::new(HostVram(start), total, granule);
                let whole = vram.largest();
                let mut held: Vec<Option<Partition>> =
                    [a, b, 1].into_iter().map(|size| vram.take(size)).collect();
                for (index, one) in held.iter().enumerate() {
                    let Some(one) = one else { continue };
                    let (first, end) = (one.start().0, one.start().0 + one.size());
                    assert!(first >= start && end <= start + total && first.is_multiple_of(granule));
                    assert!(one.size().is_multiple_of(granule) && one.size() > 0);
                    for other in held.iter().skip(index + 1).flatten() {
                        let apart = end <= other.start().0 || other.start().0 + other.size() <= first;
                        assert!(apart, "{one:?} and {other:?} of {start}+{total}");
                    }
                }
                for index in order {
                    if let Some(partition) = held[index].take() {
                        vram.give_back(partition);
                    }
                }
                assert_eq!(
                    vram.largest(),
                    whole,
                    "{start}+{total} by {granule}: {a}, {b}, 1 in order {order:?}"
                );
            }
        }
    }

    /// Every range of a small partition and around it, and those at the end of 64 bits.
    #[test]
    fn every_range_is_translated_exactly_if_it_is_inside() {
        let partition = allocator().take(16 * MIB).unwrap();
        let size = partition.size();
        let near = |base: u64| (0..6).flat_map(move |by| [base.wrapping_add(by), base.wrapping_sub(by)]);
        let values: Vec<u64> =
            [0, size, size / 2, partition.start().0, 1 << 63, u64::MAX].into_iter().flat_map(near).collect();
        for offset in &values {
            for bytes in &values {
                let end = u128::from(*offset) + u128::from(*bytes);
                let inside = end <= u128::from(size);
                let expected = inside.then(|| HostVram(partition.start().0 + offset));
                assert_eq!(
                    partition.translate(GuestVram(*offset), *bytes),
                    expected,
                    "{offset:#x}+{bytes:#x}"
                );
            }
            let room = if *offset < size { size - offset } else { 0 };
            assert_eq!(partition.room_after(GuestVram(*offset)), room);
        }
    }

    proptest! {
        #[test]
        fn random_takes_and_returns_never_overlap_and_lose_nothing(ops in prop::collection::vec(
            (any::<bool>(), 0_u64..80 * MIB, any::<prop::sample::Index>()), 1..60))
        {
            let mut vram = allocator();
            let mut held: Vec<Partition> = Vec::new();
            for (take, size, index) in ops {
                if take || held.is_empty() {
                    if let Some(p) = vram.take(size) {
                        prop_assert!(p.start().0 >= 64 * MIB && p.start().0 + p.size() <= 320 * MIB);
                        prop_assert!(p.start().is_aligned(16 * MIB) && p.size() >= size);
                        for h in &held {
                            prop_assert!(p.start().0 + p.size() <= h.start().0
                                || h.start().0 + h.size() <= p.start().0);
                        }
                        held.push(p);
                    }
                } else {
                    vram.give_back(held.swap_remove(index.index(held.len())));
                }
            }
            for p in held {
                vram.give_back(p);
            }
            prop_assert_eq!(vram.largest(), 256 * MIB);
        }

        #[test]
        fn translated_ranges_never_leave_the_partition(offset: u64, size: u64) {
            let p = allocator().take(48 * MIB).unwrap();
            if let Some(host) = p.translate(GuestVram(offset), size) {
                prop_assert!(host.0 >= p.start().0);
                prop_assert!(host.0 + size <= p.start().0 + p.size());
            }
        }
    }
}
