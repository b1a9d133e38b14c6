//! PMC, the master control unit: chip identity, unit resets, the top of the interrupt tree.

crate::registers! {
    unit "PMC", source "open-gpu-doc dev_master; nouveau nvkm/subdev/mc, nvkm/engine/device/base.c";
    /// Chip identification. 0x0c0 is GF100.
    NV_PMC_BOOT_0 @ 0x000000, reset 0x0c00_00a3, Constant, { 28:20 CHIPSET, 7:4 MAJOR_REVISION, 3:0 MINOR_REVISION };
    /// Endian control; 0 is little endian. Later chips report virtual functions here.
    NV_PMC_BOOT_1 @ 0x000004, reset 0, Constant, { 0:0 ENDIAN };
    /// Interrupts pending, a bit for each unit. Follows the units' own status; nothing is latched here.
    NV_PMC_INTR @ 0x000100, reset 0, Handler, {
        30:30 PRIV_RING, 28:28 PBUS, 24:24 PMU, 20:20 PTIMER, 12:12 PGRAPH, 8:8 PFIFO, 6:6 PCE1, 5:5 PCE0
    };
    /// Second word of pending interrupts; no unit of this GPU uses it.
    NV_PMC_INTR_1 @ 0x000104, reset 0, Constant, {};
    /// Interrupt line enable: bit 0 lets pending hardware interrupts out.
    NV_PMC_INTR_EN_0 @ 0x000140, reset 0, Handler, { 1:1 SOFTWARE, 0:0 HARDWARE };
    /// Interrupt line enable of the second word.
    NV_PMC_INTR_EN_1 @ 0x000144, reset 0, Scratch, { 1:1 SOFTWARE, 0:0 HARDWARE };
    /// L2 slices with an interrupt pending.
    NV_PMC_INTR_LTC @ 0x00017c, reset 0, Constant, {};
    /// Unit enables; a unit whose bit is clear is held in reset.
    NV_PMC_ENABLE @ 0x000200, reset 0, Handler, {
        30:30 PDISP, 20:20 PFB, 17:17 PMSPDEC, 15:15 PMSVLD, 13:13 PMU, 12:12 PGRAPH, 8:8 PFIFO, 7:7 PCE1, 6:6 PCE0,
        1:1 PMSPPP
    };
    /// PBDMA enables. Only bits of PBDMAs that exist can be set, which is how drivers count them.
    NV_PMC_ENABLE_PBDMA @ 0x000204, reset 0, Handler, { 2:0 PBDMA };
    /// Clock gating of the units around PGRAPH while its context is built.
    NV_PMC_ELPG_ENABLE @ 0x000260, reset 1, Scratch, { 0:0 ENABLE };
    /// Which pending units may raise the line; all after reset, so that drivers that do not know it work.
    NV_PMC_INTR_MSK_0 @ 0x000640, reset 0xffff_ffff, Handler, {};
    /// The same for the second word.
    NV_PMC_INTR_MSK_1 @ 0x000644, reset 0xffff_ffff, Scratch, {};
}
