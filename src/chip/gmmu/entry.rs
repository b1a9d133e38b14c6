//! What entries say, whatever their format, and the bits that all formats have in the same place.

use crate::{Aperture, PhysicalAddress};

crate::fields! { u64;
    /// A page's entry (NV_MMU_VER2_PTE, NV_MMU_VER3_PTE).
    PTE {
        2:1 APERTURE = {
            VIDEO_MEMORY: 0,
            /// Another GPU's.
            PEER_MEMORY: 1,
            SYSTEM_COHERENT_MEMORY: 2,
            SYSTEM_NON_COHERENT_MEMORY: 3,
        },
        /// In directories: this is a page (IS_PTE).
        0:0 VALID
    }
    /// An entry that names a table, or a half of one that names two (NV_MMU_VER2_PDE, NV_MMU_VER3_PDE). With
    /// aperture 0 it names none.
    PDE {
        2:1 APERTURE = {
            VIDEO_MEMORY: 1,
            SYSTEM_COHERENT_MEMORY: 2,
            SYSTEM_NON_COHERENT_MEMORY: 3,
        }
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
}

/// What an entry of [`Level::Pd1`](super::Level::Pd1) and above says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// A table below, or none.
    Pde(Pde),
    /// A page of what the entry covers. It is none where [`Gmmu::has_pages`](super::Gmmu::has_pages) says
    /// that the level has none.
    Page(Result<Pte, PteDefect>),
}

/// What an entry of [`Level::Pd0`](super::Level::Pd0) says.
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

/// A page entry that is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte {
    /// First byte of the page, a multiple of 4 KiB. Hardware ignores the bits below the page size.
    pub target: PhysicalAddress,
    /// Stores fault.
    pub read_only: bool,
    /// Only privileged units may use it.
    pub privileged: bool,
    /// Storage kind: 8 bits in version 2, 4 bits in version 3. From Turing on, 0 is pitch-linear, 6 generic,
    /// 7 invalid.
    pub kind: u8,
}

/// Why a page entry translates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PteDefect {
    /// Not valid. In a big table: a small page may be there.
    NotValid,
    /// Not mapped; reads are 0, writes are dropped.
    Sparse,
    /// Mapped to nowhere: as sparse, but what was written never becomes a page. Version 3 only.
    Nowhere,
    /// In a big table: not valid, and no small page is there either.
    NoSmallPages,
    /// Memory of another GPU, of that number.
    Peer(u8),
}

/// Whether an entry is a valid page, or, in a directory, a page and no table.
pub(super) const fn is_page(raw: u64) -> bool {
    PTE::VALID.is_set(raw)
}

/// Which memory a page lies in; `None`: another GPU's.
pub(super) const fn page_aperture(raw: u64) -> Option<Aperture> {
    match PTE::APERTURE.get(raw) {
        PTE::APERTURE::VIDEO_MEMORY => Some(Aperture::Vram),
        PTE::APERTURE::SYSTEM_COHERENT_MEMORY => Some(Aperture::SystemCoherent),
        PTE::APERTURE::SYSTEM_NON_COHERENT_MEMORY => Some(Aperture::SystemNonCoherent),
        _ => None,
    }
}

/// The bits that say that a page is valid and lies in this memory.
pub(super) const fn valid_in(aperture: Aperture) -> u64 {
    let aperture = match aperture {
        Aperture::Vram => PTE::APERTURE::VIDEO_MEMORY,
        Aperture::SystemCoherent => PTE::APERTURE::SYSTEM_COHERENT_MEMORY,
        Aperture::SystemNonCoherent => PTE::APERTURE::SYSTEM_NON_COHERENT_MEMORY,
    };
    PTE::VALID.mask() | PTE::APERTURE.of(aperture)
}

/// The bits of a page of another GPU.
pub(super) const fn valid_in_peer() -> u64 {
    PTE::VALID.mask() | PTE::APERTURE.of(PTE::APERTURE::PEER_MEMORY)
}

/// Which memory a table lies in, where there is one.
pub(super) const fn table_aperture(raw: u64) -> Option<Aperture> {
    match PDE::APERTURE.get(raw) {
        PDE::APERTURE::VIDEO_MEMORY => Some(Aperture::Vram),
        PDE::APERTURE::SYSTEM_COHERENT_MEMORY => Some(Aperture::SystemCoherent),
        PDE::APERTURE::SYSTEM_NON_COHERENT_MEMORY => Some(Aperture::SystemNonCoherent),
        _ => None,
    }
}

/// The bits that say that a table lies in this memory.
pub(super) const fn table_in(aperture: Aperture) -> u64 {
    PDE::APERTURE.of(match aperture {
        Aperture::Vram => PDE::APERTURE::VIDEO_MEMORY,
        Aperture::SystemCoherent => PDE::APERTURE::SYSTEM_COHERENT_MEMORY,
        Aperture::SystemNonCoherent => PDE::APERTURE::SYSTEM_NON_COHERENT_MEMORY,
    })
}

/// The 64-bit halves of a dual entry, lower first.
#[expect(clippy::cast_possible_truncation, reason = "taking the halves apart is the purpose")]
pub(super) const fn halves(raw: u128) -> (u64, u64) {
    (raw as u64, (raw >> 64) as u64)
}
