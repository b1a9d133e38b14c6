//! The meaning of an entry in two words, which are compared, merged and passed on for every page of a table.
//!
//! A decoded [`Entry`] has gaps between its fields and several shapes; compilers move it about in parts of
//! odd sizes, which costs ten times what decoding does.

use super::format::{Entry, Leaf, Shape};
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// An entry without the addresses of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// One of the constants below, or a page: [`PAGE`], aperture, "read only", storage kind.
    what: u64,
    /// Of a page: the first byte that it maps.
    address: u64,
}

const PAGE: u64 = 1 << 32;
const READ_ONLY: u64 = 1 << 16;
const APERTURE: u32 = 8;

impl Packed {
    pub const EMPTY: Self = Self { what: 0, address: 0 };
    pub const REFUSED: Self = Self { what: 1, address: 0 };
    /// Tables: which, the entry itself says.
    pub const TABLES: Self = Self { what: 2, address: 0 };

    #[inline]
    pub fn of(entry: Entry) -> Self {
        match entry {
            Entry::Empty => Self::EMPTY,
            Entry::Refused => Self::REFUSED,
            Entry::Tables(_) => Self::TABLES,
            Entry::Page(leaf) => Self::page(leaf),
        }
    }

    #[inline]
    pub const fn page(leaf: Leaf) -> Self {
        let aperture: u64 = match leaf.target.aperture {
            Aperture::Vram => 0,
            Aperture::SystemCoherent => 1,
            Aperture::SystemNonCoherent => 2,
        };
        // CAST: widening.
        let kind = leaf.kind as u64 | if leaf.read_only { READ_ONLY } else { 0 };
        Self { what: PAGE | aperture << APERTURE | kind, address: leaf.target.address }
    }

    /// The page, where it is one.
    #[inline]
    pub const fn leaf(self) -> Option<Leaf> {
        if !self.is_page() {
            return None;
        }
        let aperture = match self.what >> APERTURE & 3 {
            0 => Aperture::Vram,
            1 => Aperture::SystemCoherent,
            _ => Aperture::SystemNonCoherent,
        };
        // CAST: the lowest byte is meant.
        #[expect(clippy::cast_possible_truncation, reason = "the storage kind is the lowest byte")]
        let kind = self.what as u8;
        let target = PhysicalAddress { aperture, address: self.address };
        Some(Leaf { target, read_only: self.what & READ_ONLY != 0, kind })
    }

    #[inline]
    pub const fn is_page(self) -> bool {
        self.what & PAGE != 0
    }

    /// True for pages that differ in nothing but where they point.
    #[inline]
    pub const fn is_like(self, other: Self) -> bool {
        self.what == other.what
    }

    /// First byte that a page maps.
    #[inline]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// The entry that is `entries` places behind this one, where pages are consecutive and all else is alike.
    #[inline]
    pub const fn after(self, entries: usize, shape: Shape) -> Self {
        if !self.is_page() {
            return self;
        }
        // CAST: widening.
        Self { address: self.address.saturating_add((entries as u64) << shape.entry_shift), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_packed_and_unpacked() {
        for aperture in [Aperture::Vram, Aperture::SystemCoherent, Aperture::SystemNonCoherent] {
            for (read_only, kind) in (0..=255).flat_map(|kind| [(false, kind), (true, kind)]) {
                for address in [0, 0x1000, 1 << 51, u64::MAX << 12] {
                    let leaf = Leaf { target: PhysicalAddress { aperture, address }, read_only, kind };
                    assert_eq!(Packed::of(Entry::Page(leaf)).leaf(), Some(leaf));
                }
            }
        }
        for other in [Packed::EMPTY, Packed::REFUSED, Packed::TABLES] {
            assert_eq!((other.leaf(), other.is_page()), (None, false));
        }
    }
}
