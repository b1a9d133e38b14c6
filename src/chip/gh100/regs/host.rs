//! What is left of the classic units: identification, straps, flushes, the size of VRAM.

crate::registers! {
    unit "HOST", source "open-gpu-kernel-modules hopper/gh100 dev_pmc.h, dev_therm.h, dev_therm_addendum.h, dev_fb.h, pri_nv_xal_ep.h, ampere/ga102 dev_gc6_island.h, maxwell/gm107 dev_flush.h; nouveau nvkm/engine/device/base.c, subdev/fsp/gh100.c, fb/ga102.c, bar/g84.c, instmem/gh100.c";
    /// Chip identification. Architecture 0x18 is Hopper. Drivers read it in each interrupt, too.
    NV_PMC_BOOT_0 @ 0x000000, reset 0x180000a1, Constant, { 28:24 ARCHITECTURE, 23:20 IMPLEMENTATION, 7:4 MAJOR_REVISION, 3:0 MINOR_REVISION };
    /// Whether this is a virtual function (which drivers refuse), and endianness. A physical, little-endian
    /// one.
    NV_PMC_BOOT_1 @ 0x000004, reset 0, Constant, { 17:16 VGPU, 0:0 ENDIAN };
    /// Progress of FSP's secure boot. 0xff: complete.
    NV_THERM_I2CS_SCRATCH @ 0x0200bc, reset 0xff, Constant, { 31:0 FSP_BOOT_COMPLETE_STATUS };
    /// Flush of writes through the BARs. Writes land in order here: never busy.
    NV_UFLUSH_FB_FLUSH @ 0x070000, reset 0, Constant, { 1:1 OUTSTANDING, 0:0 PENDING };
    /// System memory page that flushes read, address bits 39:8. Not used here.
    NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_LO @ 0x100a34, reset 0, Scratch, { 31:0 ADR };
    /// The same, address bits 63:40.
    NV_PFB_FBHUB_PCIE_FLUSH_SYSMEM_ADDR_HI @ 0x100a38, reset 0, Scratch, { 19:0 ADR };
    /// Straps.
    NV_PEXTDEV_BOOT_0 @ 0x101000, reset 0, Constant, {};
    /// What PRAMIN shows: a window of 1 MiB at a multiple of 64 KiB of VRAM.
    NV_XAL_EP_BAR0_WINDOW @ 0x10fd40, reset 0, Handler, { 21:0 BASE };
    /// VRAM in MiB, as firmware leaves it here.
    NV_PGC6_AON_SECURE_SCRATCH_GROUP_42 @ 0x1183a4, reset 0, Handler, { 31:0 USABLE_FB_SIZE_IN_MB };
}
