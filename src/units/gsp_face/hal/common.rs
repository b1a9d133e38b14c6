//! What all families have at the same place: the interrupt tree, invalidation, doorbell, time, BARs.

use super::{Doorbell, InterruptTree, Invalidation, Pci, PciCapabilities, Timer, VramSize};
use gpuvmk_chip::addr::PAGE_SHIFT;
use gpuvmk_chip::gsp::GspChip;
use gpuvmk_chip::gsp::regs::{timer::*, vfn::*, vram_size::*};

/// log2 of the bytes of a MiB.
pub(super) const MIB_SHIFT: u32 = 20;

/// A card of a chip, on a link of that generation, with capabilities as earlier cards have them.
pub(super) const fn pci(chip: &GspChip, link_speed: u8) -> Pci {
    Pci {
        device_id: chip.device_id,
        revision: 0xa1,
        subsystem: 0x16c1,
        bar0_size: 16 << 20,
        bar1_size: 256 << 20,
        bar3_size: 32 << 20,
        link_speed,
        capabilities: EARLIER_CAPABILITIES,
    }
}

/// Capabilities up to Ada (and on every chip in states that were saved before Hopper had its own places).
pub const EARLIER_CAPABILITIES: PciCapabilities =
    PciCapabilities { power: 0x60, msi: 0x68, pcie: 0x78, bar1_size: None, errors: None };

/// The tree.
pub(super) const INTERRUPTS: InterruptTree = InterruptTree {
    leaf: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF,
    leaf_enable_set: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET,
    leaf_enable_clear: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR,
    top: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP,
    top_enable_set: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET,
    top_enable_clear: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR,
    trigger: (
        NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_TRIGGER,
        NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_TRIGGER::VECTOR,
    ),
};

/// The doorbell up to Hopper.
pub(super) const DOORBELL: Doorbell = Doorbell {
    register: NV_VIRTUAL_FUNCTION_DOORBELL,
    runlist: NV_VIRTUAL_FUNCTION_DOORBELL::RUNLIST,
    chid: NV_VIRTUAL_FUNCTION_DOORBELL::CHID,
    required: 0,
};

/// Where user mode's page is behind the function's own registers (NV_VIRTUAL_FUNCTION in `dev_vm.h`).
pub(super) const USER_PAGE: u64 = 0x3_0000;

/// The invalidation.
pub(super) const INVALIDATION: Invalidation = Invalidation {
    pdb: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB,
    pdb_system: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB::APERTURE,
    pdb_address: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB::ADDR,
    pdb_shift: PAGE_SHIFT,
    upper_pdb: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB,
    upper_address: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB::ADDR,
    upper_shift: 40,
    command: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE,
    trigger: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE::TRIGGER,
    hub_only: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE::HUBTLB_ONLY,
};

/// The time.
pub(super) const TIMER: Timer = Timer {
    low: NV_PTIMER_TIME_0,
    high: NV_PTIMER_TIME_1,
    user_low: NV_VIRTUAL_FUNCTION_TIME_0,
    user_high: NV_VIRTUAL_FUNCTION_TIME_1,
};

/// The size of VRAM from GA102 on.
pub(super) const VRAM: VramSize =
    VramSize { register: NV_PGC6_AON_SECURE_SCRATCH_GROUP_42, value: mebibytes };

/// NV_PGC6_AON_SECURE_SCRATCH_GROUP_42 of so many bytes of VRAM.
fn mebibytes(vram: u64) -> u32 {
    u32::try_from(vram >> MIB_SHIFT).unwrap_or(u32::MAX)
}
