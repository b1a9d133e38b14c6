//! Entries of a table as runs of alike ones: consecutive pages, and entries that are 0.
//!
//! A driver that maps a megabyte writes 256 entries that differ by the same number. Only the first and the
//! last of such a run are decoded; the words between are checked without decoding, many at a time. The old
//! and the new content of a table are compared by runs of both.

use std::ops::Range;

use super::format::{MmuFormat, Shape, TableKind};
use super::packed::Packed;

/// Words that are looked at together.
const LANES: usize = 8;

/// Finds where runs begin and end, in one pass over entries from the front.
pub(super) struct AlikeEntries<F> {
    format: F,
    kind: TableKind,
    shape: Shape,
    step: Option<u64>,
    /// The current run of alike entries, and its first entry.
    start: usize,
    end: usize,
    entry: Packed,
    /// Entries before this one are decoded one by one: their words look alike, but their meanings do not
    /// continue each other.
    single: usize,
}

impl<F: MmuFormat> AlikeEntries<F> {
    /// Before the first entry of tables of `kind`.
    pub fn new(format: F, kind: TableKind) -> Self {
        let (shape, step) = (format.shape(kind), format.step(kind));
        Self { format, kind, shape, step, start: 0, end: 0, entry: Packed::EMPTY, single: 0 }
    }

    /// Meaning of entry `index`, and the number of entries from there on that continue it: at least one.
    /// Calls for the same table must come with rising indices; entries before may have changed.
    #[inline]
    pub fn at(&mut self, entries: &[u8], index: usize) -> (Packed, usize) {
        if index >= self.end {
            self.load(entries, index);
        }
        let entry = self.entry.after(index.saturating_sub(self.start), self.shape);
        (entry, self.end.saturating_sub(index).max(1))
    }

    fn load(&mut self, entries: &[u8], index: usize) {
        let size = self.shape.entry_size;
        let rest = entries.get(index.saturating_mul(size)..).unwrap_or_default();
        let raw = raw(rest.get(..size).unwrap_or_default());
        let entry = self.decode(raw);
        let length = self.length(rest, raw, entry, index);
        self.entry = entry;
        self.start = index;
        self.end = index.saturating_add(length.max(1));
    }

    #[inline]
    fn decode(&self, raw: u128) -> Packed {
        Packed::of(self.format.decode(self.kind, raw))
    }

    /// How many entries from the first of `rest` on are alike; the first is number `index`, and means
    /// `entry`.
    #[inline]
    fn length(&mut self, rest: &[u8], first: u128, entry: Packed, index: usize) -> usize {
        let (words, _) = rest.as_chunks::<8>();
        if first == 0 && entry == Packed::EMPTY {
            let zeros = progression(words, 0, 0);
            return if self.shape.entry_size == 8 { zeros } else { zeros / 2 };
        }
        let (Some(step), Ok(first)) = (self.step, u64::try_from(first)) else { return 1 };
        if !entry.is_page() || index < self.single {
            return 1;
        }
        let length = progression(words, first, step);
        let steps = length.saturating_sub(1);
        let last = first.wrapping_add(step.wrapping_mul(steps as u64));
        if steps == 0 || self.decode(last.into()) == entry.after(steps, self.shape) {
            return length;
        }
        // The address ran over into other bits.
        self.single = index.saturating_add(length);
        1
    }
}

/// An entry's bits.
#[inline]
pub(super) fn raw(entry: &[u8]) -> u128 {
    if let Ok(word) = entry.try_into() {
        return u64::from_le_bytes(word).into();
    }
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(entry).for_each(|(to, from)| *to = *from);
    u128::from_le_bytes(bytes)
}

/// True when entry `index` is the same in both copies.
#[inline]
pub(super) fn same_entry(old: &[u8], new: &[u8], index: usize, shape: Shape) -> bool {
    let word = |at: usize| old.as_chunks::<8>().0.get(at) == new.as_chunks::<8>().0.get(at);
    if shape.entry_size == 8 { word(index) } else { word(index * 2) && word(index * 2 + 1) }
}

/// How many words from the front are `first`, `first + step`, `first + 2 * step` and so on; the first one is.
#[inline]
fn progression(words: &[[u8; 8]], first: u64, step: u64) -> usize {
    // Where nothing follows, there is no need to look at many.
    match words.get(1) {
        Some(word) if u64::from_le_bytes(*word) == first.wrapping_add(step) => {
            long_progression(words, first, step)
        }
        _ => 1,
    }
}

fn long_progression(words: &[[u8; 8]], first: u64, step: u64) -> usize {
    let matching = |words: &[[u8; 8]], from: usize| {
        let wanted = (from as u64..).map(|index| first.wrapping_add(step.wrapping_mul(index)));
        words.iter().zip(wanted).take_while(|(word, wanted)| u64::from_le_bytes(**word) == *wanted).count()
    };
    let mut wanted: [u64; LANES] =
        std::array::from_fn(|lane| first.wrapping_add(step.wrapping_mul(lane as u64)));
    let (lines, rest) = words.as_chunks::<LANES>();
    let mut length = 0usize;
    for line in lines {
        let mut different = 0;
        for (word, wanted) in line.iter().zip(&mut wanted) {
            different |= u64::from_le_bytes(*word) ^ *wanted;
            *wanted = wanted.wrapping_add(step.wrapping_mul(LANES as u64));
        }
        if different != 0 {
            return length.saturating_add(matching(line, length));
        }
        length = length.saturating_add(LANES);
    }
    length.saturating_add(matching(rest, length))
}

/// Bytes that are compared at a time where two copies of a piece differ.
const LINE: usize = 64;

/// The first part from byte `from` on in which two copies differ, in whole lines, until they agree again.
/// Entries are never cut: a line is a multiple of their size.
pub(super) fn next_difference(old: &[u8], new: &[u8], from: usize) -> Option<Range<usize>> {
    let (old, new) = (old.get(from..)?, new.get(from..)?);
    let ((old_lines, old_rest), (new_lines, new_rest)) = (old.as_chunks::<LINE>(), new.as_chunks::<LINE>());
    let mut lines = old_lines.iter().zip(new_lines).map(|(old, new)| old == new);
    let bytes = |lines: usize| from.saturating_add(lines.saturating_mul(LINE));
    let (all, end) = (old_lines.len(), from.saturating_add(new.len()));
    let rest_differs = old_rest != new_rest;
    let Some(first) = lines.position(|same| !same) else {
        return rest_differs.then(|| bytes(all)..end);
    };
    match lines.position(|same| same) {
        Some(more) => Some(bytes(first)..bytes(first.saturating_add(1).saturating_add(more))),
        None if rest_differs => Some(bytes(first)..end),
        None => Some(bytes(first)..bytes(all)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Fermi, Leaf};
    use gpuvmk_chip::gf100::mmu::{LargePages, Pte};
    use gpuvmk_chip::gmmu::Gmmu;
    use gpuvmk_chip::{Aperture, PhysicalAddress};

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Every entry, one by one and by runs.
    fn compare<F: MmuFormat>(format: F, kind: TableKind, entries: &[u8]) {
        let shape = format.shape(kind);
        let mut runs = AlikeEntries::new(format, kind);
        let mut at = 0;
        while at < entries.len() / shape.entry_size {
            let (entry, length) = runs.at(entries, at);
            for index in 0..length {
                let one = &entries[(at + index) * shape.entry_size..][..shape.entry_size];
                let said = Packed::of(format.decode(kind, raw(one)));
                assert_eq!(said, entry.after(index, shape), "entry {at} + {index} of {kind:?}");
            }
            at += length;
        }
        assert_eq!(at, entries.len() / shape.entry_size);
    }

    fn page(address: u64) -> Packed {
        let target = PhysicalAddress { aperture: Aperture::Vram, address };
        Packed::page(Leaf { target, read_only: false, kind: 0 })
    }

    #[test]
    fn pages_that_follow_each_other_are_one_run() {
        let words: Vec<u64> = (0..100)
            .map(|page| PhysicalAddress { aperture: Aperture::Vram, address: 0x10_0000 + (page << 12) })
            .map(|target| Pte { target, read_only: false, privileged: false, kind: 0 }.encode())
            .collect();
        let entries = bytes(&[&words[..], &[0; 30], &words[50..51]].concat());
        let mut runs = AlikeEntries::new(Fermi::default(), TableKind(0));

        assert_eq!(runs.at(&entries, 0), (page(0x10_0000), 100));
        assert_eq!(runs.at(&entries, 60), (page(0x10_0000 + (60 << 12)), 40));
        assert_eq!(runs.at(&entries, 100), (Packed::EMPTY, 30));
        assert_eq!(runs.at(&entries, 130), (page(0x10_0000 + (50 << 12)), 1));
    }

    /// Addresses that run over into the bits behind them, at every place of a run.
    #[test]
    fn addresses_that_run_over_end_a_run() {
        for (format, kind, step) in [(Fermi::default(), 0, 0x10u64), (Fermi::default(), 1, 0x200)] {
            for before in 0..40 {
                let first = (0xffff_fff0u64 - before * step) | 1;
                let words: Vec<u64> = (0..40).map(|index| first + index * step).collect();
                compare(format, TableKind(kind), &bytes(&words));
            }
        }
        // The last unit of each format's address, and of version 2 both that of VRAM and of system memory.
        for (format, last, unit) in [
            (Gmmu::V3, 0x000f_ffff_ffff_f001u64, 0x1000u64),
            (Gmmu::V2, 0x0000_0001_ffff_ff01, 0x100),
            (Gmmu::V2, 0x003f_ffff_ffff_ff05, 0x100),
        ] {
            for (kind, step) in [(0, unit), (1, unit << 4)] {
                for before in 0..40 {
                    let first = last - before * step;
                    let words: Vec<u64> = (0..40).map(|index| first + index * step).collect();
                    compare(format, TableKind(kind), &bytes(&words));
                }
            }
        }
    }

    /// Words that often go on like the ones before.
    fn tables() -> impl Strategy<Value = Vec<u64>> {
        let piece =
            (any::<u64>(), any::<bool>(), 0u64..6, 1usize..24).prop_map(|(first, ends, step, length)| {
                let step = [0, 0x10, 0x100, 0x200, 0x1000, 0x1_0000][usize::try_from(step).unwrap_or(0)];
                // Near the end of all formats' addresses.
                let first = if ends { first | 0x000f_ffff_ffff_0000 } else { first };
                let first = if step == 0 { 0 } else { first };
                (0..length as u64).map(|index| first.wrapping_add(index * step)).collect::<Vec<_>>()
            });
        proptest::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn runs_say_what_entries_say(mut words in tables()) {
            words.truncate(words.len() / 2 * 2);
            let entries = bytes(&words);
            for large_pages in [LargePages::K128, LargePages::K64] {
                for kind in 0..3 {
                    compare(Fermi { large_pages }, TableKind(kind), &entries);
                }
            }
            for format in Gmmu::ALL {
                for kind in 0..7 {
                    compare(format, TableKind(kind), &entries);
                }
            }
        }

        #[test]
        fn every_difference_lies_in_a_part_that_is_named(
            old in proptest::collection::vec(0u8..2, 0..400),
            flips in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut new = old.clone();
            for flip in flips {
                if !new.is_empty() {
                    let at = flip.index(new.len());
                    new[at] ^= 1;
                }
            }
            let mut named = vec![false; old.len()];
            let mut from = 0;
            while let Some(part) = next_difference(&old, &new, from) {
                prop_assert!(part.start >= from && part.end > part.start && part.end <= new.len());
                prop_assert_ne!(&old[part.clone()], &new[part.clone()]);
                from = part.end;
                named[part].fill(true);
            }
            for (index, named) in named.iter().enumerate() {
                prop_assert!(*named || old[index] == new[index]);
            }
            prop_assert_eq!(next_difference(&old, &old, 0), None);
        }
    }
}
