//! The page-table format of Hopper ("version 3"), as GH100's GMMU walks it.
//!
//! Five levels of directories over 57 bits of virtual address. The lowest directory has entries of 16 bytes
//! that name two tables for the same 2 MiB, one of big (64 KiB) and one of small (4 KiB) pages; an entry of
//! the two lowest directories may be a page itself (512 MiB, 2 MiB). One bit means "valid page" in tables and
//! "this is a page" in directories; a directory entry is valid by its aperture. The five PCF bits ("page
//! classification field") say how a page may be used; in an entry that is not valid they say why: never,
//! sparse (reads 0, drops writes), or, in a big table, "do not look for a small page". The big table is
//! looked at first.
//!
//! Not kept: ATS, the cache and atomics bits (the memory behind is one and coherent); a peer's memory decodes
//! as a defect, because a function has no peers.
//!
//! Source: open-gpu-kernel-modules `dev_mmu.h` of gh100 (NV_MMU_VER3_*), nouveau
//! `nvkm/subdev/mmu/vmmgh100.c`, checked on running guests.

use crate::{Aperture, PhysicalAddress};

/// Bits of a virtual address.
pub const VA_BITS: u32 = 57;

/// Highest virtual address.
pub const VA_MAX: u64 = (1 << VA_BITS) - 1;

/// Address bits of pages, directories and small tables: 51:12.
const PAGE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Address bits of big tables: 51:8.
const BIG_TABLE_ADDRESS: u64 = 0x000f_ffff_ffff_ff00;

/// A kind of table. The names count directories from the page tables up, as NVIDIA's do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Pages of 4 KiB.
    Small,
    /// Pages of 64 KiB.
    Big,
    /// Dual entries: pages of 2 MiB, or a big and a small table.
    Pd0,
    /// Pages of 512 MiB, or [`Level::Pd0`].
    Pd1,
    /// Names [`Level::Pd1`].
    Pd2,
    /// Names [`Level::Pd2`].
    Pd3,
    /// The root, which a page-directory base names: two entries.
    Pd4,
}

impl Level {
    /// All, from the pages up.
    pub const ALL: [Self; 7] =
        [Self::Small, Self::Big, Self::Pd0, Self::Pd1, Self::Pd2, Self::Pd3, Self::Pd4];

    /// log2 of the bytes of virtual range that an entry covers.
    pub const fn shift(self) -> u8 {
        match self {
            Self::Small => 12,
            Self::Big => 16,
            Self::Pd0 => 21,
            Self::Pd1 => 29,
            Self::Pd2 => 38,
            Self::Pd3 => 47,
            Self::Pd4 => 56,
        }
    }

    /// Entries of a table.
    pub const fn entries(self) -> u64 {
        match self {
            Self::Small | Self::Pd1 | Self::Pd2 | Self::Pd3 => 512,
            Self::Big => 32,
            Self::Pd0 => 256,
            Self::Pd4 => 2,
        }
    }

    /// Bytes of an entry.
    pub const fn entry_size(self) -> u64 {
        match self {
            Self::Pd0 => 16,
            _ => 8,
        }
    }

    /// Index in a table of this kind of a virtual address.
    pub const fn index(self, va: u64) -> u64 {
        (va >> self.shift()) & (self.entries() - 1)
    }

    /// The kind of table that an entry of [`Level::Pd1`] to [`Level::Pd4`] names.
    pub const fn below(self) -> Option<Self> {
        match self {
            Self::Pd4 => Some(Self::Pd3),
            Self::Pd3 => Some(Self::Pd2),
            Self::Pd2 => Some(Self::Pd1),
            Self::Pd1 => Some(Self::Pd0),
            Self::Pd0 | Self::Big | Self::Small => None,
        }
    }

    /// True when an entry of this kind of table can be a page.
    pub const fn has_pages(self) -> bool {
        matches!(self, Self::Small | Self::Big | Self::Pd0 | Self::Pd1)
    }
}

/// A directory entry, or a half of a dual one, that is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pde {
    /// Names nothing.
    #[default]
    Invalid,
    /// Nothing is mapped, and accesses do not fault: reads are 0, writes are dropped.
    Sparse,
    /// Names a table.
    Table(PhysicalAddress),
}

impl Pde {
    /// The table, where it names one.
    pub const fn table(self) -> Option<PhysicalAddress> {
        match self {
            Self::Table(address) => Some(address),
            Self::Invalid | Self::Sparse => None,
        }
    }

    const fn decode_with(raw: u64, address: u64) -> Self {
        let aperture = match (raw >> 1) & 3 {
            1 => Aperture::Vram,
            2 => Aperture::SystemCoherent,
            3 => Aperture::SystemNonCoherent,
            // Bit 0 of the PCF is "sparse" where no aperture is given.
            _ if raw & (1 << 3) != 0 => return Self::Sparse,
            _ => return Self::Invalid,
        };
        Self::Table(PhysicalAddress { aperture, address: raw & address })
    }

    const fn encode_with(self, address: u64) -> u64 {
        // PCF: bit 0 uncached or sparse, bit 1 ATS not allowed.
        match self {
            Self::Invalid => 0,
            Self::Sparse => 1 << 3,
            Self::Table(table) => {
                let (aperture, pcf) = match table.aperture {
                    Aperture::Vram => (1, 2),
                    Aperture::SystemCoherent => (2, 3),
                    Aperture::SystemNonCoherent => (3, 2),
                };
                aperture << 1 | pcf << 3 | table.address & address
            }
        }
    }
}

/// What an entry of [`Level::Pd1`] to [`Level::Pd4`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// A table below, or none.
    Pde(Pde),
    /// A page of what the entry covers. Only [`Level::has_pages`] directories may have it.
    Page(Result<Pte, PteDefect>),
}

impl Directory {
    /// Decodes the 64-bit entry.
    pub const fn decode(raw: u64) -> Self {
        if raw & 1 != 0 {
            return Self::Page(Pte::decode(raw));
        }
        Self::Pde(Pde::decode_with(raw, PAGE_ADDRESS))
    }
}

/// What an entry of [`Level::Pd0`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DualPde {
    /// Two tables of the same range, or none.
    Tables {
        /// 64 KiB pages: looked at first.
        big: Pde,
        /// 4 KiB pages.
        small: Pde,
    },
    /// A page of 2 MiB.
    Page(Result<Pte, PteDefect>),
}

impl DualPde {
    /// Decodes the 128-bit entry.
    pub const fn decode(raw: u128) -> Self {
        let (low, high) = halves(raw);
        if low & 1 != 0 {
            return Self::Page(Pte::decode(low));
        }
        Self::Tables {
            big: Pde::decode_with(low, BIG_TABLE_ADDRESS),
            // Bit 0 of the upper half has no meaning.
            small: Pde::decode_with(high, PAGE_ADDRESS),
        }
    }

    /// Encodes an entry that names tables. Addresses are multiples of 256 (big) and 4096 (small) below 2^52.
    pub const fn tables(big: Pde, small: Pde) -> u128 {
        // CAST: widening.
        big.encode_with(BIG_TABLE_ADDRESS) as u128 | (small.encode_with(PAGE_ADDRESS) as u128) << 64
    }

    /// Encodes a page of 2 MiB.
    pub const fn page(page: Pte) -> u128 {
        // CAST: widening.
        page.encode() as u128
    }
}

/// Encodes an entry of [`Level::Pd1`] to [`Level::Pd4`]. The address is a multiple of 4 KiB below 2^52. A
/// page is encoded by [`Pte::encode`].
pub const fn encode_pde(pde: Pde) -> u64 {
    pde.encode_with(PAGE_ADDRESS)
}

/// A page entry that is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte {
    /// First byte of the page. The format has room for any 4 KiB multiple below 2^52 (VRAM: 2^40); hardware
    /// ignores the bits below the page size.
    pub target: PhysicalAddress,
    /// Stores fault.
    pub read_only: bool,
    /// Only privileged units may use it.
    pub privileged: bool,
    /// Storage kind, 4 bits: 0 is pitch-linear, 6 generic, 7 invalid.
    pub kind: u8,
}

/// Why a page entry translates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PteDefect {
    /// Not valid. In a big table: a small page may be there.
    NotValid,
    /// Not mapped; reads are 0, writes are dropped.
    Sparse,
    /// Mapped to nowhere: as sparse, but what was written never becomes a page.
    Nowhere,
    /// In a big table: not valid, and no small page is there either.
    NoSmallPages,
    /// Memory of another GPU, of that number.
    Peer(u8),
}

/// PCF bits of a valid page.
mod pcf {
    /// Not cached in the GPU.
    pub const UNCACHED: u64 = 1 << 0;
    /// Privileged units only.
    pub const PRIVILEGED: u64 = 1 << 1;
    /// Stores fault.
    pub const READ_ONLY: u64 = 1 << 2;
    /// "Access counters disabled" (ACD), which drivers set for their own memory.
    pub const COUNTERS_DISABLED: u64 = 1 << 4;
}

impl Pte {
    /// Decodes the 64-bit entry.
    ///
    /// # Errors
    /// It is not valid, or points at no memory of ours.
    pub const fn decode(raw: u64) -> Result<Self, PteDefect> {
        let pcf = (raw >> 3) & 0x1f;
        if raw & 1 == 0 {
            return Err(match pcf {
                1 => PteDefect::Sparse,
                2 => PteDefect::Nowhere,
                3 => PteDefect::NoSmallPages,
                _ => PteDefect::NotValid,
            });
        }
        let aperture = match (raw >> 1) & 3 {
            0 => Aperture::Vram,
            2 => Aperture::SystemCoherent,
            3 => Aperture::SystemNonCoherent,
            // CAST: three bits.
            _ => return Err(PteDefect::Peer((raw >> 61) as u8)),
        };
        Ok(Self {
            target: PhysicalAddress { aperture, address: raw & PAGE_ADDRESS },
            read_only: pcf & pcf::READ_ONLY != 0,
            privileged: pcf & pcf::PRIVILEGED != 0,
            // CAST: four bits.
            kind: ((raw >> 8) & 0xf) as u8,
        })
    }

    /// Encodes the entry as valid. The address is a multiple of 4 KiB below 2^52.
    pub const fn encode(self) -> u64 {
        let (aperture, uncached) = match self.target.aperture {
            Aperture::Vram => (0, 0),
            Aperture::SystemCoherent => (2, pcf::UNCACHED),
            Aperture::SystemNonCoherent => (3, 0),
        };
        let mut pcf = pcf::COUNTERS_DISABLED | uncached;
        if self.read_only {
            pcf |= pcf::READ_ONLY;
        }
        if self.privileged {
            pcf |= pcf::PRIVILEGED;
        }
        1 | aperture << 1 | pcf << 3 | ((self.kind & 0xf) as u64) << 8 | self.target.address & PAGE_ADDRESS
    }
}

impl PteDefect {
    /// Encodes an entry that is not valid for this reason.
    pub const fn encode(self) -> u64 {
        match self {
            Self::NotValid => 0,
            Self::Sparse => 1 << 3,
            Self::Nowhere => 2 << 3,
            Self::NoSmallPages => 3 << 3,
            Self::Peer(id) => 1 | 1 << 1 | ((id & 7) as u64) << 61,
        }
    }
}

/// The 64-bit halves of a dual entry, lower first.
#[expect(clippy::cast_possible_truncation, reason = "taking the halves apart is the purpose")]
const fn halves(raw: u128) -> (u64, u64) {
    (raw as u64, (raw >> 64) as u64)
}

#[cfg(test)]
mod tests;
