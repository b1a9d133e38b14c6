//! Version 3, from Hopper on: five levels of directories over 57 bits.
//!
//! The five PCF bits ("page classification field") say how a page may be used; in an entry that is not valid
//! they say why: never, sparse, mapped to nowhere, or "do not look for a small page".
//!
//! Source: open-gpu-kernel-modules `dev_mmu.h` of gh100 (NV_MMU_VER3_*), nouveau
//! `nvkm/subdev/mmu/vmmgh100.c`, checked on running guests.

use super::entry::{self, Pde, Pte, PteDefect};
use super::level::Level;
use crate::registers::Field64;
use crate::{Aperture, PhysicalAddress};

/// Bits of a virtual address.
pub(super) const VA_BITS: u32 = 57;

crate::fields! { u64;
    /// A page's entry (NV_MMU_VER3_PTE). The bits of its PCF stand for themselves here.
    PTE {
        63:61 PEER_ID,
        /// Of VRAM, cards have 39:12.
        51:12 ADDRESS,
        11:8 KIND,
        7:7 PCF_COUNTERS_DISABLED,
        5:5 PCF_READ_ONLY,
        4:4 PCF_PRIVILEGE,
        3:3 PCF_UNCACHED,
        7:3 PCF = {
            /// Of an entry that is not valid, as the others here.
            SPARSE: 1,
            MAPPING_NOWHERE: 2,
            NO_VALID_4KB_PAGE: 3,
        }
    }
    /// An entry that names a table, and the upper half of one that names two (NV_MMU_VER3_PDE).
    PDE {
        51:12 ADDRESS,
        4:4 PCF_ATS_NOT_ALLOWED,
        /// Uncached; where no table is named, sparse.
        3:3 PCF_UNCACHED
    }
    /// The lower half of an entry that names two tables (NV_MMU_VER3_DUAL_PDE).
    DUAL_PDE { 51:8 ADDRESS_BIG }
}

/// The difference between the entries of consecutive pages: addresses stand in entries as they are.
pub(super) const fn page_step(level: Level) -> u64 {
    1 << level.shift()
}

pub(super) const fn pde(raw: u64) -> Pde {
    decode_pde(raw, PDE::ADDRESS)
}

pub(super) const fn big_pde(raw: u64) -> Pde {
    decode_pde(raw, DUAL_PDE::ADDRESS_BIG)
}

const fn decode_pde(raw: u64, address: Field64) -> Pde {
    match entry::table_aperture(raw) {
        Some(aperture) => Pde::Table(PhysicalAddress { aperture, address: raw & address.mask() }),
        None if PDE::PCF_UNCACHED.is_set(raw) => Pde::Sparse,
        None => Pde::Invalid,
    }
}

pub(super) const fn pte(raw: u64) -> Result<Pte, PteDefect> {
    if !entry::is_page(raw) {
        return Err(match PTE::PCF.get(raw) {
            PTE::PCF::SPARSE => PteDefect::Sparse,
            PTE::PCF::MAPPING_NOWHERE => PteDefect::Nowhere,
            PTE::PCF::NO_VALID_4KB_PAGE => PteDefect::NoSmallPages,
            _ => PteDefect::NotValid,
        });
    }
    let Some(aperture) = entry::page_aperture(raw) else {
        return Err(PteDefect::Peer(PTE::PEER_ID.get_u8(raw)));
    };
    Ok(Pte {
        target: PhysicalAddress { aperture, address: raw & PTE::ADDRESS.mask() },
        read_only: PTE::PCF_READ_ONLY.is_set(raw),
        privileged: PTE::PCF_PRIVILEGE.is_set(raw),
        kind: PTE::KIND.get_u8(raw),
    })
}

pub(super) const fn encode_pde(pde: Pde) -> u64 {
    encode_with(pde, PDE::ADDRESS)
}

pub(super) const fn encode_big_pde(pde: Pde) -> u64 {
    encode_with(pde, DUAL_PDE::ADDRESS_BIG)
}

const fn encode_with(pde: Pde, address: Field64) -> u64 {
    match pde {
        Pde::Invalid => 0,
        Pde::Sparse => PDE::PCF_UNCACHED.mask(),
        Pde::Table(table) => {
            entry::table_in(table.aperture)
                | PDE::PCF_ATS_NOT_ALLOWED.mask()
                | uncached(table.aperture)
                | table.address & address.mask()
        }
    }
}

pub(super) const fn encode_pte(page: Pte) -> u64 {
    let Pte { target, read_only, privileged, kind } = page;
    // CAST: widening.
    entry::valid_in(target.aperture)
        | PTE::PCF_COUNTERS_DISABLED.mask()
        | uncached(target.aperture)
        | PTE::PCF_READ_ONLY.of(read_only as u64)
        | PTE::PCF_PRIVILEGE.of(privileged as u64)
        | PTE::KIND.of(kind as u64)
        | target.address & PTE::ADDRESS.mask()
}

pub(super) const fn encode_defect(defect: PteDefect) -> u64 {
    PTE::PCF.of(match defect {
        PteDefect::NotValid => 0,
        PteDefect::Sparse => PTE::PCF::SPARSE,
        PteDefect::Nowhere => PTE::PCF::MAPPING_NOWHERE,
        PteDefect::NoSmallPages => PTE::PCF::NO_VALID_4KB_PAGE,
        // CAST: widening.
        PteDefect::Peer(id) => return entry::valid_in_peer() | PTE::PEER_ID.of(id as u64),
    })
}

/// Drivers do not have snooped memory cached in the GPU.
const fn uncached(aperture: Aperture) -> u64 {
    match aperture {
        Aperture::SystemCoherent => PTE::PCF_UNCACHED.mask(),
        Aperture::Vram | Aperture::SystemNonCoherent => 0,
    }
}
