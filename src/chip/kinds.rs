//! Storage kinds of pages: how memory is laid out, and whether it is compressed.
//!
//! Compressed kinds keep a part of each page in tags that all of a GPU shares and that its manager gives out.
//! Guests get no tags, so each such kind is replaced by the one with the same layout that is not compressed,
//! as drivers do with system memory.

/// The kind that a page gets for each kind that a table may name. A kind that is not one is invalid.
#[derive(Clone, PartialEq, Eq)]
pub struct StorageKinds {
    plain: [u8; 256],
    /// Marks in `plain` a number that is no kind.
    invalid: u8,
    /// Pages of this kind are no memory, but registers of the function.
    registers: Option<u8>,
}

impl std::fmt::Debug for StorageKinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageKinds").field("invalid", &self.invalid).finish_non_exhaustive()
    }
}

impl StorageKinds {
    /// From runs of kinds: first, last, and what the first becomes. In a run with `true` the kinds that they
    /// become follow each other as well; otherwise all become the same.
    pub(super) const fn new(invalid: u8, runs: &[(u8, u8, u8, bool)]) -> Self {
        let mut plain = [invalid; 256];
        let mut index = 0;
        while index < runs.len() {
            let (first, last, becomes, counts) = runs[index];
            let mut kind = first;
            loop {
                plain[kind as usize] = if counts { becomes + (kind - first) } else { becomes };
                if kind == last {
                    break;
                }
                kind += 1;
            }
            index += 1;
        }
        Self { plain, invalid, registers: None }
    }

    /// The same, with pages of a kind that are registers.
    pub(super) const fn with_registers(self, kind: u8) -> Self {
        Self { registers: Some(kind), ..self }
    }

    /// True for pages that are no memory, but registers of the function.
    pub fn is_registers(&self, kind: u8) -> bool {
        self.registers == Some(kind)
    }

    /// The kind without compression that has the same layout; `None`: the chip has no such kind.
    pub fn plain(&self, kind: u8) -> Option<u8> {
        self.plain.get(usize::from(kind)).copied().filter(|plain| *plain != self.invalid)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Chip, Face};

    #[test]
    fn plain_kinds_are_their_own() {
        for chip in Chip::ALL {
            let kinds = chip.kinds;
            for plain in (0..=u8::MAX).filter_map(|kind| kinds.plain(kind)) {
                assert_eq!(kinds.plain(plain), Some(plain), "{chip} {plain:#x}");
            }
        }
    }

    #[test]
    fn kinds_that_drivers_use_and_what_they_become() {
        let fermi = |kind| Chip::GF100.kinds.plain(kind);
        // Pitch, the usual blocks and their compressed forms, depth; what is no kind.
        assert_eq!([0x00, 0xfe, 0xdb, 0xf4].map(fermi), [0x00, 0xfe, 0xfe, 0xfe].map(Some));
        assert_eq!(
            [0x01, 0x02, 0x11, 0x17, 0x46, 0x51].map(fermi),
            [0x01, 0x01, 0x11, 0x11, 0x46, 0x46].map(Some)
        );
        assert_eq!(
            [0x3a, 0x3f, 0x41, 0xa3, 0xbf, 0xc2].map(fermi),
            [0x26, 0x27, 0x29, 0x8b, 0xa7, 0xaa].map(Some)
        );
        assert_eq!([0x06, 0x10, 0x8f, 0xfc, 0xff].map(fermi), [None; 5]);
    }

    /// Of each number in NVIDIA's list, what the layout is called without compression.
    #[test]
    fn kinds_from_turing_on_are_those_of_the_list() {
        const NONE: u8 = 7;
        let list = [0, 1, 2, 3, 4, 5, 6, NONE, 6, 6, 2, 1, 3, 4, 5, NONE];
        for chip in Chip::with_face(Face::Gsp) {
            for kind in 0..=u8::MAX {
                let plain = list.get(usize::from(kind)).copied().filter(|plain| *plain != NONE);
                assert_eq!(chip.kinds.plain(kind), plain, "{chip} {kind:#x}");
            }
        }
    }
}
