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
