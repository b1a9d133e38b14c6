//! What differs from family to family: Hopper.

/// Hopper's secure boot, and the system memory page that flushes read.
pub mod host {
    crate::registers! {
        unit "HOPPER HOST", source "open-gpu-kernel-modules hopper/gh100 dev_therm.h, dev_therm_addendum.h, dev_fb.h; nouveau nvkm/subdev/fsp/gh100.c, fb/gh100.c";
        /// Progress of FSP's secure boot. 0xff: complete.
        NV_THERM_I2CS_SCRATCH @ 0x0200bc, reset 0xff, Constant, { 31:0 FSP_BOOT_COMPLETE_STATUS };
        /// System memory page that flushes read, address bits 39:8. Not used here.
        NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_LO @ 0x100a34, reset 0, Scratch, { 31:0 ADR };
        /// The same, address bits 63:40.
        NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_HI @ 0x100a38, reset 0, Scratch, { 19:0 ADR };
    }
}

/// What NVIDIA's own driver looks at before it boots GSP. All of it is as on a card on which nothing ran.
pub mod scratch {
    crate::registers! {
        unit "HOPPER SCRATCH", source "open-gpu-kernel-modules hopper/gh100 dev_gc6_island.h, dev_fsp_pri.h, ampere/ga102 dev_fb.h";
        /// State of the card's own firmware.
        NV_PGC6_AON_SECURE_SCRATCH_GROUP_20 @ 0x1182cc, reset 0, Constant, {};
        /// The secure timer, low word. It stands still.
        NV_PGC6_SCI_SEC_TIMER_TIME_0 @ 0x118f54, reset 0, Constant, {};
        /// The same, high word.
        NV_PGC6_SCI_SEC_TIMER_TIME_1 @ 0x118f58, reset 0, Constant, {};
        /// End of the write-protected region 2. There is none: VRAM has nothing of the firmware's image.
        NV_PFB_PRI_MMU_WPR2_ADDR_HI @ 0x1fa828, reset 0, Constant, { 31:4 VAL };
        /// Scratch of FSP's firmware.
        NV_PFSP_FALCON_COMMON_SCRATCH_GROUP_3[4; 4] @ 0x8f0330, reset 0, Constant, {};
    }
}
