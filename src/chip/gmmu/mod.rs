//! Formats of page tables since Pascal, by NVIDIA's number: what a GPU's MMU (GMMU) walks.
//!
//! Both have directories over the same levels. The lowest directory has entries of 16 bytes that name two
//! tables for the same 2 MiB, one of big (64 KiB) and one of small (4 KiB) pages. Such an entry may be a page
//! of 2 MiB itself, and, from Ampere on, an entry of the directory above one of 512 MiB. One bit
//! means "valid page" in tables and "this is a page" in directories; a directory entry is valid by its
//! aperture. An entry that is not valid may say why: sparse (reads 0, drops writes), or, in a big table, "do
//! not look for a small page". The big table is looked at first.
//!
//! They differ in their root, and in where the fields of an entry stand: [`v2`] and [`v3`].
//!
//! Not kept: ATS, the cache and atomics bits (the memory behind is one and coherent); a peer's memory decodes
//! as a defect, because a function has no peers.

mod entry;
mod level;
#[cfg(test)]
mod tests;
mod v2;
mod v3;

pub use entry::{Directory, DualPde, Pde, Pte, PteDefect};
pub use level::Level;

/// A format by NVIDIA's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gmmu {
    /// Pascal to Turing: 49 bits of virtual address, addresses in entries shifted right by 4.
    V2,
    /// Ampere and Ada: version 2, with pages of 512 MiB.
    V2Ampere,
    /// From Hopper on: 57 bits, addresses in entries as they are.
    V3,
}

impl Gmmu {
    /// All, oldest first.
    pub const ALL: [Self; 3] = [Self::V2, Self::V2Ampere, Self::V3];

    /// Bits of a virtual address.
    pub const fn va_bits(self) -> u32 {
        match self {
            Self::V2 | Self::V2Ampere => v2::VA_BITS,
            Self::V3 => v3::VA_BITS,
        }
    }

    /// Highest virtual address.
    pub const fn va_max(self) -> u64 {
        (1 << self.va_bits()) - 1
    }

    /// The kind of table that a page-directory base names.
    pub const fn root(self) -> Level {
        match self {
            Self::V2 | Self::V2Ampere => Level::Pd3,
            Self::V3 => Level::Pd4,
        }
    }

    /// Entries of a table. A root has as many as the virtual addresses need.
    pub const fn entries(self, level: Level) -> u64 {
        let root = self.root();
        // CAST: widening.
        let covered = if level as u8 == root as u8 { self.va_bits() } else { level.table_shift() as u32 };
        1 << (covered - level.shift() as u32)
    }

    /// Index in a table of a virtual address.
    pub const fn index(self, level: Level, va: u64) -> u64 {
        (va >> level.shift()) & (self.entries(level) - 1)
    }

    /// True when an entry of this kind of table can be a page.
    ///
    /// Source: open-gpu-kernel-modules, the `kgmmuFmtInitLevels` that a chip has (`g_kern_gmmu_nvoc.c`):
    /// Turing's is GP10X's, and `kern_gmmu_fmt_ga10x.c` makes PD1 a table of pages, for Ampere and Ada.
    pub const fn has_pages(self, level: Level) -> bool {
        match level {
            Level::Small | Level::Big | Level::Pd0 => true,
            Level::Pd1 => !matches!(self, Self::V2),
            Level::Pd2 | Level::Pd3 | Level::Pd4 => false,
        }
    }

    /// The difference between a page's entry and that of the next page in memory, in tables of `level`.
    pub const fn page_step(self, level: Level) -> u64 {
        match self {
            Self::V2 | Self::V2Ampere => v2::page_step(level),
            Self::V3 => v3::page_step(level),
        }
    }

    /// Decodes an entry of [`Level::Pd1`] and above.
    #[inline]
    pub const fn decode_directory(self, raw: u64) -> Directory {
        if entry::is_page(raw) {
            return Directory::Page(self.decode_page(raw));
        }
        Directory::Pde(match self {
            Self::V2 | Self::V2Ampere => v2::pde(raw),
            Self::V3 => v3::pde(raw),
        })
    }

    /// Decodes an entry of [`Level::Pd0`].
    #[inline]
    pub const fn decode_dual(self, raw: u128) -> DualPde {
        let (low, high) = entry::halves(raw);
        if entry::is_page(low) {
            return DualPde::Page(self.decode_page(low));
        }
        // Bit 0 of the upper half has no meaning.
        match self {
            Self::V2 | Self::V2Ampere => DualPde::Tables { big: v2::big_pde(low), small: v2::pde(high) },
            Self::V3 => DualPde::Tables { big: v3::big_pde(low), small: v3::pde(high) },
        }
    }

    /// Decodes a page's entry, which is the same in tables and directories.
    ///
    /// # Errors
    /// It is not valid, or points at no memory of ours.
    #[inline]
    pub const fn decode_page(self, raw: u64) -> Result<Pte, PteDefect> {
        match self {
            Self::V2 | Self::V2Ampere => v2::pte(raw),
            Self::V3 => v3::pte(raw),
        }
    }

    /// Encodes an entry of [`Level::Pd1`] and above that is no page. The address is a multiple of 4 KiB that
    /// the format has room for.
    pub const fn encode_pde(self, pde: Pde) -> u64 {
        match self {
            Self::V2 | Self::V2Ampere => v2::encode_pde(pde),
            Self::V3 => v3::encode_pde(pde),
        }
    }

    /// Encodes an entry of [`Level::Pd0`] that names tables. Addresses are multiples of 256 (big) and 4096
    /// (small) that the format has room for.
    pub const fn encode_tables(self, big: Pde, small: Pde) -> u128 {
        let low = match self {
            Self::V2 | Self::V2Ampere => v2::encode_big_pde(big),
            Self::V3 => v3::encode_big_pde(big),
        };
        // CAST: widening.
        low as u128 | (self.encode_pde(small) as u128) << 64
    }

    /// Encodes a page's entry as valid. The address is a multiple of 4 KiB that the format has room for.
    pub const fn encode_page(self, page: Pte) -> u64 {
        match self {
            Self::V2 | Self::V2Ampere => v2::encode_pte(page),
            Self::V3 => v3::encode_pte(page),
        }
    }

    /// Encodes a page's entry that is not valid for this reason. Where a format does not have the reason, the
    /// entry is not valid without one.
    pub const fn encode_defect(self, defect: PteDefect) -> u64 {
        match self {
            Self::V2 | Self::V2Ampere => v2::encode_defect(defect),
            Self::V3 => v3::encode_defect(defect),
        }
    }
}
