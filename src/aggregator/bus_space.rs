//! Bus addresses for tenants' memory.
//!
//! They are given out in chunks, which are as large as the physical GPU's largest page, and at least as the
//! large pages of the host's processor and IOMMU. Guest-physical addresses of one chunk become bus addresses
//! of one chunk, at the same place in it. So large pages stay large pages, and pages that a guest's machine
//! maps one by one become adjacent again. Consecutive chunks of a tenant are consecutive on the bus too
//! wherever there is room.

use super::dma_range::DmaRange;
use gpuvmk_chip::addr::{Gpa, Iova};
use gpuvmk_ordered::{OrderedMap, OrderedSet};

/// The large pages of the host's processor and IOMMU.
const LEAST_CHUNK: u64 = 2 << 20;

/// The free bus addresses, counted in chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusSpace {
    chunk: u64,
    /// First chunk and length of each free stretch; neighbours are always one.
    free: OrderedMap<u64, u64>,
    /// The same by length.
    by_length: OrderedSet<(u64, u64)>,
}

impl BusSpace {
    /// Addresses from `first` to below 2 to `bits`, for a GPU whose largest page has 2 to `page_shift` bytes.
    pub fn new(first: Iova, bits: u8, page_shift: u8) -> Self {
        let power = |bits: u8| 1_u64.checked_shl(u32::from(bits));
        let chunk = power(page_shift).unwrap_or(0).max(LEAST_CHUNK);
        let (start, end) = (first.0.div_ceil(chunk), power(bits).unwrap_or(u64::MAX) / chunk);
        let mut space = Self { chunk, free: OrderedMap::new(), by_length: OrderedSet::new() };
        space.add(start, end.saturating_sub(start));
        space
    }

    /// Bytes of a chunk.
    pub const fn chunk(&self) -> u64 {
        self.chunk
    }

    fn add(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.free.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    fn remove(&mut self, start: u64, length: u64) {
        self.free.remove(&start);
        self.by_length.remove(&(length, start));
    }

    /// The smallest free stretch that is large enough.
    fn take(&mut self, length: u64) -> Option<u64> {
        let (room, start) = *self.by_length.range((length, 0)..).next()?;
        self.remove(start, room);
        self.add(start.saturating_add(length), room.saturating_sub(length));
        Some(start)
    }

    /// These chunks, if they are free.
    fn take_at(&mut self, start: u64, length: u64) -> bool {
        let Some((&first, &room)) = self.free.range(..=start).next_back() else { return false };
        let (end, free_end) = (start.saturating_add(length), first.saturating_add(room));
        if end > free_end {
            return false;
        }
        self.remove(first, room);
        self.add(first, start.saturating_sub(first));
        self.add(end, free_end.saturating_sub(end));
        true
    }

    fn give_back(&mut self, start: u64, length: u64) {
        let (mut first, mut end) = (start, start.saturating_add(length));
        if let Some((&before, &room)) = self.free.range(..start).next_back()
            && before.saturating_add(room) == start
        {
            self.remove(before, room);
            first = before;
        }
        if let Some(&room) = self.free.get(&end) {
            self.remove(end, room);
            end = end.saturating_add(room);
        }
        self.add(first, end.saturating_sub(first));
    }
}

/// Chunks of guest-physical addresses that follow each other, on the bus too.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// First chunk on the bus.
    bus: u64,
    chunks: u64,
    /// Bytes of it that are mapped.
    used: u64,
}

/// A tenant's runs, by their first chunk of guest-physical addresses.
#[derive(Debug, Default)]
pub struct Runs {
    runs: OrderedMap<u64, Run>,
    chunks: u64,
    chunk: u64,
}

impl Runs {
    /// Bytes of bus addresses that it has.
    pub const fn bytes(&self) -> u64 {
        self.chunks.saturating_mul(self.chunk)
    }

    /// The last run that begins at a chunk or before it.
    fn before(&self, chunk: u64) -> Option<(u64, Run)> {
        self.runs.range(..=chunk).next_back().map(|(first, run)| (*first, *run))
    }

    /// Bus addresses for a range of guest-physical ones of which nothing is mapped. Only its first and its
    /// last chunk can be in use already, so it becomes three pieces at most.
    pub(super) fn place(&mut self, space: &mut BusSpace, gpa: Gpa, size: u64) -> Option<Vec<DmaRange>> {
        self.chunk = space.chunk;
        let end = gpa.0.checked_add(size)?;
        let mut pieces: Vec<DmaRange> = Vec::new();
        let mut at = gpa.0;
        while at < end {
            let Some(piece) = self.place_some(space, at, end) else {
                for piece in &pieces {
                    self.release(space, piece.gpa, piece.size);
                }
                return None;
            };
            at = at.saturating_add(piece.size);
            match pieces.last_mut() {
                Some(last) if last.iova.0.saturating_add(last.size) == piece.iova.0 => {
                    last.size = last.size.saturating_add(piece.size);
                }
                _ => pieces.push(piece),
            }
        }
        Some(pieces)
    }

    /// The first piece of `[at, end)`.
    fn place_some(&mut self, space: &mut BusSpace, at: u64, end: u64) -> Option<DmaRange> {
        let size = space.chunk;
        let chunk = at / size;
        if let Some(piece) = self.use_run(chunk, at, end) {
            return Some(piece);
        }
        let before = self.before(chunk);
        let after = self.runs.range(chunk..).next().map(|(first, run)| (*first, *run));
        let last = end.div_ceil(size).min(after.map_or(u64::MAX, |(first, _)| first));
        let wanted = last.saturating_sub(chunk);
        if let Some((first, run)) = before
            && first.saturating_add(run.chunks) == chunk
            && space.take_at(run.bus.saturating_add(run.chunks), wanted)
        {
            self.runs.insert(first, Run { chunks: run.chunks.saturating_add(wanted), ..run });
        } else if let Some((first, run)) = after
            && first == last
            && let Some(bus) = run.bus.checked_sub(wanted)
            && space.take_at(bus, wanted)
        {
            self.runs.remove(&first);
            self.runs.insert(chunk, Run { bus, chunks: run.chunks.saturating_add(wanted), ..run });
        } else {
            let bus = space.take(wanted)?;
            self.runs.insert(chunk, Run { bus, chunks: wanted, used: 0 });
        }
        self.chunks = self.chunks.saturating_add(wanted);
        self.use_run(chunk, at, end)
    }

    /// The part of `[at, end)` that lies in the run of a chunk, if it has one.
    fn use_run(&mut self, chunk: u64, at: u64, end: u64) -> Option<DmaRange> {
        let size = self.chunk;
        let (&first, run) = self.runs.range_mut(..=chunk).next_back()?;
        let run_end = first.saturating_add(run.chunks);
        if run_end <= chunk {
            return None;
        }
        let bytes = end.min(run_end.saturating_mul(size)).saturating_sub(at);
        run.used = run.used.saturating_add(bytes);
        let into = at.saturating_sub(first.saturating_mul(size));
        let iova = Iova(run.bus.saturating_mul(size).saturating_add(into));
        Some(DmaRange { gpa: Gpa(at), size: bytes, iova, writable: true })
    }

    /// Gives the bus addresses of mapped memory back. A run goes as a whole, when nothing of it is mapped.
    pub(super) fn release(&mut self, space: &mut BusSpace, gpa: Gpa, size: u64) {
        let end = gpa.0.saturating_add(size);
        let mut at = gpa.0;
        while at < end {
            let Some((first, run)) = self.before(at / self.chunk.max(1)) else { return };
            let run_end = first.saturating_add(run.chunks).saturating_mul(self.chunk);
            let bytes = end.min(run_end).saturating_sub(at);
            if bytes == 0 {
                return;
            }
            at = at.saturating_add(bytes);
            let used = run.used.saturating_sub(bytes);
            if used > 0 {
                self.runs.insert(first, Run { used, ..run });
            } else {
                self.runs.remove(&first);
                self.chunks = self.chunks.saturating_sub(run.chunks);
                space.give_back(run.bus, run.chunks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = LEAST_CHUNK;

    fn places(runs: &mut Runs, space: &mut BusSpace, gpa: u64, size: u64) -> Vec<(u64, u64)> {
        let pieces = runs.place(space, Gpa(gpa), size).unwrap();
        pieces.iter().map(|piece| (piece.iova.0, piece.size)).collect()
    }

    #[test]
    fn pages_of_one_chunk_share_one_and_chunks_grow_both_ways() {
        let (mut space, mut runs) = (BusSpace::new(Iova(0), 40, 17), Runs::default());
        let mut others = Runs::default();

        let [(first, _)] = places(&mut runs, &mut space, 10 * CHUNK + 0x3000, 0x1000)[..] else { panic!() };
        assert_eq!(first % CHUNK, 0x3000);
        assert_eq!(places(&mut runs, &mut space, 10 * CHUNK + 0x5000, 0x1000), [(first + 0x2000, 0x1000)]);
        assert_eq!(runs.bytes(), CHUNK);
        assert_eq!(
            places(&mut runs, &mut space, 11 * CHUNK, 2 * CHUNK),
            [(first - 0x3000 + CHUNK, 2 * CHUNK)]
        );
        // There is nothing in front of the first chunk.
        assert_eq!(first / CHUNK, 0);
        assert_eq!(places(&mut runs, &mut space, 9 * CHUNK, CHUNK), [(3 * CHUNK, CHUNK)]);
        // The next chunk is another's; so the range continues elsewhere, and each page stays at its place in
        // a chunk.
        places(&mut others, &mut space, 0, CHUNK);
        let across = places(&mut runs, &mut space, 8 * CHUNK + 0x1000, CHUNK - 0x1000);
        assert_eq!(across, [(5 * CHUNK + 0x1000, CHUNK - 0x1000)]);
    }

    #[test]
    fn bus_addresses_run_out_cleanly() {
        let (mut space, mut runs) = (BusSpace::new(Iova(0), 32, 17), Runs::default());
        let fresh = space.clone();

        assert!(runs.place(&mut space, Gpa(0), 1 << 33).is_none());
        assert!(runs.place(&mut space, Gpa(0x1000), u64::MAX - 0x1fff).is_none());
        assert_eq!(runs.bytes(), 0);
        assert!(runs.place(&mut space, Gpa(1 << 40), 1 << 32).is_some());
        assert!(runs.place(&mut space, Gpa(0), 0x1000).is_none());
        runs.release(&mut space, Gpa(1 << 40), 1 << 32);
        assert_eq!(space, fresh);
    }
}
