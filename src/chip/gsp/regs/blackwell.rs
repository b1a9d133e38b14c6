//! What differs from family to family: Blackwell (GB20x).

/// Blackwell's secure boot, and the system memory page that flushes read.
pub mod host {
    crate::registers! {
        unit "BLACKWELL HOST", source "nouveau nvkm/subdev/fsp/gb202.c, fb/gb202.c, gsp/rm/r570/ce.c; places were observed on running guests";
        /// Copy engines that graphics channels use, too: a bit each. The first does.
        NV_CE_GRCE_MASK @ 0x1040d8, reset 0x1, Constant, { 9:0 VALUE };
        /// System memory page that flushes read, lower word of its address. Not used here.
        NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_LO @ 0x8a1d58, reset 0, Scratch, { 31:0 ADR };
        /// The same, upper word.
        NV_PFB_FBHUB0_PCIE_FLUSH_SYSMEM_ADDR_HI @ 0x8a1d5c, reset 0, Scratch, { 31:0 ADR };
        /// Progress of FSP's secure boot. 0xff: complete.
        NV_THERM_I2CS_SCRATCH @ 0xad00bc, reset 0xff, Constant, { 31:0 FSP_BOOT_COMPLETE_STATUS };
    }
}

crate::fields! {
    /// A channel in the value that rings the doorbell.
    NV_VIRTUAL_FUNCTION_DOORBELL_TOKEN {
        /// The value names a runlist. A token that firmware gives has it set.
        30:30 RUNLIST_DOORBELL, 22:16 RUNLIST, 11:0 CHID
    }
}
