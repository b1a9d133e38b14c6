//! The registers of a GF100 that drivers touch, unit by unit, with names, fields, reset values and what a
//! guest's access does.
//!
//! Sources are NVIDIA's open-gpu-doc, the envytools database and what nouveau does; names follow the first of
//! these that has one. Names with `_CTX_` and an offset stand for context state that drivers set from fixed
//! lists and whose single registers nobody describes. What no table lists behaves as scratch.

pub mod board;
pub mod falcon;
pub mod fecs;
pub mod gpc;
pub mod gpccs;
pub mod pbus;
pub mod pce0;
pub mod pce1;
pub mod pci;
pub mod pfb;
pub mod pfifo;
pub mod pgraph;
pub mod pmc;
pub mod pmu;
pub mod priv_ring;
pub mod ptimer;
pub mod video;
pub mod windows;

use std::sync::LazyLock;

use crate::register_index::RegisterIndex;
use crate::registers::{Reg, RegisterDef};

/// All tables, by unit.
pub const TABLES: &[&[RegisterDef]] = &[
    pmc::TABLE,
    pbus::TABLE,
    pfifo::TABLE,
    ptimer::TABLE,
    board::TABLE,
    pci::TABLE,
    pfb::TABLE,
    pce0::TABLE,
    pce1::TABLE,
    pmu::TABLE,
    priv_ring::TABLE,
    video::TABLE,
    windows::TABLE,
    pgraph::TABLE,
    fecs::TABLE,
    gpccs::TABLE,
    gpc::TABLE,
];

static INDEX: LazyLock<RegisterIndex> = LazyLock::new(|| RegisterIndex::new(TABLES));

/// The tables by offset.
pub fn index() -> &'static RegisterIndex {
    &INDEX
}

/// The declaration that covers a register.
pub fn definition(reg: Reg) -> Option<&'static RegisterDef> {
    INDEX.definition(reg)
}

/// The declarations that have fields with all these names.
#[cfg(test)]
pub(super) fn definitions_with(names: &'static [&str]) -> impl Iterator<Item = &'static RegisterDef> {
    let has = |register: &RegisterDef, name: &str| register.fields.iter().any(|field| field.name == name);
    INDEX.definitions().filter(move |register| names.iter().all(|name| has(register, name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf100;
    use crate::registers::Policy;

    #[test]
    fn constants_of_the_chip_are_the_ones_in_the_tables() {
        let boot = definition(pmc::NV_PMC_BOOT_0).unwrap();
        assert_eq!((boot.reset, boot.policy), (gf100::BOOT_0, Policy::Constant));
        assert_eq!(pfifo::NV_PFIFO_CHAN_INST.count, u32::from(gf100::CHANNELS));
        assert_eq!(pfifo::NV_PPBDMA_INTR_0.count, u32::from(gf100::PBDMAS));
    }

    #[test]
    fn lookup_finds_single_registers_families_and_nothing_between() {
        let name = |offset| definition(Reg(offset)).map(|d| d.name);
        assert_eq!(name(0x100cbc), Some("NV_PFB_PRI_MMU_INVALIDATE"));
        assert_eq!(name(0x3004 + 8 * 127), Some("NV_PFIFO_CHAN_STATE"));
        assert_eq!(name(0x409804), Some("NV_PGRAPH_PRI_FECS_CC_SCRATCH"));
        assert_eq!(name(0x0000_0008), None);
    }
}
