//! Version 2, of Pascal to Ada: four levels of directories over 49 bits.
//!
//! Addresses of VRAM and of system memory have fields of different widths that begin at the same bit. Behind
//! VRAM's, a page has a peer's number and compression tags, which are the GPU's own affair and are passed
//! over. An entry that is not valid is sparse with VOL, and "no small page" with PRIVILEGE. An entry of a
//! page of 512 MiB, which Ampere and Ada have and nouveau does not make, has the same fields.
//!
//! Source: open-gpu-doc `manuals/turing/tu104/dev_mmu.ref.txt` and open-gpu-kernel-modules `dev_mmu.h` of
//! tu102 (NV_MMU_VER2_*); nouveau `nvkm/subdev/mmu/vmmgp100.c`, checked on running guests.

use super::entry::{self, Pde, Pte, PteDefect};
use super::level::Level;
use crate::registers::Field64;
use crate::{Aperture, PhysicalAddress};

/// Bits of a virtual address.
pub(super) const VA_BITS: u32 = 49;

crate::fields! { u64;
    /// A page's entry (NV_MMU_VER2_PTE). Also between 55:36: COMPTAGLINE, of pages in VRAM.
    PTE {
        63:56 KIND,
        53:8 ADDRESS_SYS,
        35:33 ADDRESS_VID_PEER,
        32:8 ADDRESS_VID,
        6:6 READ_ONLY,
        5:5 PRIVILEGE,
        3:3 VOL
    }
    /// An entry that names a table, and the upper half of one that names two (NV_MMU_VER2_PDE).
    PDE { 53:8 ADDRESS_SYS, 32:8 ADDRESS_VID, 3:3 VOL }
    /// The lower half of an entry that names two tables (NV_MMU_VER2_DUAL_PDE).
    DUAL_PDE { 53:4 ADDRESS_BIG_SYS, 32:4 ADDRESS_BIG_VID }
}

/// Addresses count units of 4 KiB (NV_MMU_VER2_PTE_ADDRESS_SHIFT).
const ADDRESS_SHIFT: u32 = 12;

/// Those of big tables count units of 256 bytes (NV_MMU_VER2_DUAL_PDE_ADDRESS_BIG_SHIFT).
const ADDRESS_BIG_SHIFT: u32 = 8;

/// Where an address stands.
struct Address {
    vid: Field64,
    sys: Field64,
    shift: u32,
}

const PAGE: Address = Address { vid: PTE::ADDRESS_VID, sys: PTE::ADDRESS_SYS, shift: ADDRESS_SHIFT };
const TABLE: Address = Address { vid: PDE::ADDRESS_VID, sys: PDE::ADDRESS_SYS, shift: ADDRESS_SHIFT };
const BIG_TABLE: Address =
    Address { vid: DUAL_PDE::ADDRESS_BIG_VID, sys: DUAL_PDE::ADDRESS_BIG_SYS, shift: ADDRESS_BIG_SHIFT };

impl Address {
    const fn field(&self, aperture: Aperture) -> Field64 {
        match aperture {
            Aperture::Vram => self.vid,
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => self.sys,
        }
    }

    const fn get(&self, raw: u64, aperture: Aperture) -> PhysicalAddress {
        PhysicalAddress { aperture, address: self.field(aperture).get(raw) << self.shift }
    }

    const fn of(&self, target: PhysicalAddress) -> u64 {
        self.field(target.aperture).of(target.address >> self.shift)
    }
}

/// The difference between the entries of consecutive pages.
pub(super) const fn page_step(level: Level) -> u64 {
    PAGE.vid.of((1 << level.shift()) >> ADDRESS_SHIFT)
}

pub(super) const fn pde(raw: u64) -> Pde {
    decode_pde(raw, &TABLE)
}

pub(super) const fn big_pde(raw: u64) -> Pde {
    decode_pde(raw, &BIG_TABLE)
}

const fn decode_pde(raw: u64, address: &Address) -> Pde {
    match entry::table_aperture(raw) {
        Some(aperture) => Pde::Table(address.get(raw, aperture)),
        None if PDE::VOL.is_set(raw) => Pde::Sparse,
        None => Pde::Invalid,
    }
}

pub(super) const fn pte(raw: u64) -> Result<Pte, PteDefect> {
    if !entry::is_page(raw) {
        return Err(if PTE::VOL.is_set(raw) {
            PteDefect::Sparse
        } else if PTE::PRIVILEGE.is_set(raw) {
            PteDefect::NoSmallPages
        } else {
            PteDefect::NotValid
        });
    }
    let Some(aperture) = entry::page_aperture(raw) else {
        return Err(PteDefect::Peer(PTE::ADDRESS_VID_PEER.get_u8(raw)));
    };
    Ok(Pte {
        target: PAGE.get(raw, aperture),
        read_only: PTE::READ_ONLY.is_set(raw),
        privileged: PTE::PRIVILEGE.is_set(raw),
        kind: PTE::KIND.get_u8(raw),
    })
}

pub(super) const fn encode_pde(pde: Pde) -> u64 {
    encode_with(pde, &TABLE)
}

pub(super) const fn encode_big_pde(pde: Pde) -> u64 {
    encode_with(pde, &BIG_TABLE)
}

const fn encode_with(pde: Pde, address: &Address) -> u64 {
    match pde {
        Pde::Invalid => 0,
        Pde::Sparse => PDE::VOL.mask(),
        Pde::Table(table) => entry::table_in(table.aperture) | vol(table.aperture) | address.of(table),
    }
}

pub(super) const fn encode_pte(page: Pte) -> u64 {
    let Pte { target, read_only, privileged, kind } = page;
    // CAST: widening.
    entry::valid_in(target.aperture)
        | vol(target.aperture)
        | PTE::PRIVILEGE.of(privileged as u64)
        | PTE::READ_ONLY.of(read_only as u64)
        | PAGE.of(target)
        | PTE::KIND.of(kind as u64)
}

pub(super) const fn encode_defect(defect: PteDefect) -> u64 {
    match defect {
        PteDefect::NotValid | PteDefect::Nowhere => 0,
        PteDefect::Sparse => PTE::VOL.mask(),
        PteDefect::NoSmallPages => PTE::PRIVILEGE.mask(),
        // CAST: widening.
        PteDefect::Peer(id) => entry::valid_in_peer() | PTE::ADDRESS_VID_PEER.of(id as u64),
    }
}

/// Drivers do not have snooped memory cached in the GPU.
const fn vol(aperture: Aperture) -> u64 {
    match aperture {
        Aperture::SystemCoherent => PTE::VOL.mask(),
        Aperture::Vram | Aperture::SystemNonCoherent => 0,
    }
}
