//! The Fermi MMU's page-table format, used from GF100 to GM107.
//!
//! Two levels over 40 bits of virtual address: a page directory whose entries each name up to two page tables
//! for the same range, one of small (4 KiB) and one of large (128 or 64 KiB) pages. An address is looked up
//! in the small table first, then in the large one. Source: open-gpu-doc `manuals/fermi`, nouveau
//! `nvkm/subdev/mmu/vmmgf100.c`, checked on running guests (classic format notes).

use crate::{Aperture, PhysicalAddress};

/// Bits of a virtual address.
pub const VA_BITS: u32 = 40;

/// Highest virtual address.
pub const VA_MAX: u64 = (1 << VA_BITS) - 1;

/// Bytes of one directory or table entry.
pub const ENTRY_SIZE: u64 = 8;

/// log2 of the small page size.
pub const SMALL_PAGE_SHIFT: u8 = 12;

/// The size of large pages, a setting of the whole MMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LargePages {
    /// 128 KiB pages; a directory entry covers 128 MiB.
    #[default]
    K128,
    /// 64 KiB pages; a directory entry covers 64 MiB.
    K64,
}

impl LargePages {
    /// From bit 0 of the MMU control register: set means 64 KiB.
    pub const fn from_64k(is_64k: bool) -> Self {
        if is_64k { Self::K64 } else { Self::K128 }
    }

    /// log2 of the page size.
    pub const fn page_shift(self) -> u8 {
        match self {
            Self::K128 => 17,
            Self::K64 => 16,
        }
    }

    /// log2 of the bytes that one directory entry covers.
    pub const fn directory_shift(self) -> u8 {
        match self {
            Self::K128 => 27,
            Self::K64 => 26,
        }
    }

    /// Entries of a page directory.
    pub const fn directory_entries(self) -> u64 {
        1 << (VA_BITS - self.directory_shift() as u32)
    }

    /// Entries of a table of pages of `page_shift`.
    pub const fn table_entries(self, page_shift: u8) -> u64 {
        1 << (self.directory_shift() - page_shift)
    }

    /// Index in the page directory of a virtual address.
    pub const fn directory_index(self, va: u64) -> u64 {
        (va & VA_MAX) >> self.directory_shift()
    }

    /// Index in a table of pages of `page_shift` of a virtual address.
    pub const fn table_index(self, va: u64, page_shift: u8) -> u64 {
        (va & ((1 << self.directory_shift()) - 1)) >> page_shift
    }
}

/// A page-directory entry: where the tables of its range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pde {
    /// Table of large pages.
    pub large: Option<PhysicalAddress>,
    /// Table of small pages.
    pub small: Option<PhysicalAddress>,
}

impl Pde {
    /// Decodes the 64-bit entry.
    pub const fn decode(raw: u64) -> Self {
        Self {
            large: table(raw & 3, (raw & 0xffff_fff0) << 8),
            small: table((raw >> 32) & 3, (raw >> 36) << 12),
        }
    }

    /// Encodes the entry. Addresses are multiples of 4 KiB below 2^40.
    pub const fn encode(self) -> u64 {
        let mut raw = 0;
        if let Some(large) = self.large {
            raw |= table_target(large.aperture) | (large.address >> 8) & 0xffff_fff0;
            if matches!(large.aperture, Aperture::SystemCoherent) {
                raw |= 1 << 35;
            }
        }
        if let Some(small) = self.small {
            raw |= table_target(small.aperture) << 32 | (small.address >> 12) << 36;
            if matches!(small.aperture, Aperture::SystemCoherent) {
                raw |= 1 << 34;
            }
        }
        raw
    }
}

const fn table(target: u64, address: u64) -> Option<PhysicalAddress> {
    let aperture = match target {
        1 => Aperture::Vram,
        2 => Aperture::SystemCoherent,
        3 => Aperture::SystemNonCoherent,
        _ => return None,
    };
    Some(PhysicalAddress { aperture, address })
}

const fn table_target(aperture: Aperture) -> u64 {
    match aperture {
        Aperture::Vram => 1,
        Aperture::SystemCoherent => 2,
        Aperture::SystemNonCoherent => 3,
    }
}

/// A page-table entry that is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte {
    /// First byte of the page. The format has room for any 4 KiB multiple below 2^40; hardware ignores the
    /// bits below the page size.
    pub target: PhysicalAddress,
    /// Stores fault.
    pub read_only: bool,
    /// Only privileged units may use it.
    pub privileged: bool,
    /// Storage kind; 0 is pitch-linear.
    pub kind: u8,
}

/// Why an entry translates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PteDefect {
    /// The valid bit is clear.
    NotValid,
    /// The aperture field names no memory (1: peer).
    Aperture,
}

impl Pte {
    /// Decodes the 64-bit entry.
    ///
    /// # Errors
    /// It is not valid, or points at no memory of ours.
    pub const fn decode(raw: u64) -> Result<Self, PteDefect> {
        if raw & 1 == 0 {
            return Err(PteDefect::NotValid);
        }
        let aperture = match (raw >> 33) & 3 {
            0 => Aperture::Vram,
            2 => Aperture::SystemCoherent,
            3 => Aperture::SystemNonCoherent,
            _ => return Err(PteDefect::Aperture),
        };
        Ok(Self {
            target: PhysicalAddress { aperture, address: (raw & 0xffff_fff0) << 8 },
            read_only: raw & (1 << 2) != 0,
            privileged: raw & (1 << 1) != 0,
            kind: ((raw >> 36) & 0xff) as u8,
        })
    }

    /// Encodes the entry as valid. The address is a multiple of 4 KiB below 2^40.
    pub const fn encode(self) -> u64 {
        let (aperture, volatile) = match self.target.aperture {
            Aperture::Vram => (0, 0),
            Aperture::SystemCoherent => (2, 1),
            Aperture::SystemNonCoherent => (3, 1),
        };
        1 | (self.privileged as u64) << 1
            | (self.read_only as u64) << 2
            | (self.target.address >> 8) & 0xffff_fff0
            | volatile << 32
            | aperture << 33
            | (self.kind as u64) << 36
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn apertures() -> impl Strategy<Value = Aperture> {
        prop_oneof![Just(Aperture::Vram), Just(Aperture::SystemCoherent), Just(Aperture::SystemNonCoherent)]
    }

    fn page_addresses() -> impl Strategy<Value = PhysicalAddress> {
        (apertures(), 0u64..1 << 28)
            .prop_map(|(aperture, page)| PhysicalAddress { aperture, address: page << 12 })
    }

    proptest! {
        #[test]
        fn encoded_pde_decodes_to_itself(
            large in proptest::option::of(page_addresses()),
            small in proptest::option::of(page_addresses()),
        ) {
            let pde = Pde { large, small };
            prop_assert_eq!(Pde::decode(pde.encode()), pde);
        }

        #[test]
        fn encoded_pte_decodes_to_itself(
            target in page_addresses(), read_only: bool, privileged: bool, kind: u8,
        ) {
            let pte = Pte { target, read_only, privileged, kind };
            prop_assert_eq!(Pte::decode(pte.encode()), Ok(pte));
        }

        #[test]
        fn any_word_decodes_within_the_format(raw: u64) {
            let pde = Pde::decode(raw);
            for table in [pde.large, pde.small].into_iter().flatten() {
                prop_assert!(table.address <= VA_MAX && table.address.is_multiple_of(4096));
            }
            if let Ok(pte) = Pte::decode(raw) {
                prop_assert!(pte.target.address <= VA_MAX && pte.target.address.is_multiple_of(4096));
            }
        }
    }

    #[test]
    fn cleared_valid_bit_and_peer_aperture_are_defects() {
        assert_eq!(Pte::decode(0x10), Err(PteDefect::NotValid));
        assert_eq!(Pte::decode(1 | 1 << 33), Err(PteDefect::Aperture));
    }

    #[test]
    fn indices_follow_the_large_page_size() {
        let va = 0x12_3456_7890;
        assert_eq!(LargePages::K128.directory_index(va), va >> 27);
        assert_eq!(LargePages::K64.directory_index(va), va >> 26);
        assert_eq!(LargePages::K128.table_index(va, 12), (va & 0x7ff_ffff) >> 12);
        assert_eq!(LargePages::K64.table_index(va, 16), (va & 0x3ff_ffff) >> 16);
        assert_eq!(LargePages::K128.directory_entries(), 8192);
        assert_eq!(LargePages::K128.table_entries(17), 1024);
    }
}
