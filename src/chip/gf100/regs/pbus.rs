//! PBUS, the bus interface: its own interrupts, the PRAMIN window, the instance blocks of BAR1 and BAR3, and
//! the flush registers beside it.

crate::registers! {
    unit "PBUS", source "open-gpu-doc dev_bus; nouveau nvkm/subdev/bus/gf100.c, bar/{gf100,g84}.c, instmem/nv50.c";
    /// Bus interrupts pending: register accesses that nobody answered.
    NV_PBUS_INTR_0 @ 0x001100, reset 0, Handler, { 3:3 PRI_TIMEOUT, 2:2 PRI_FECSERR, 1:1 PRI_SQUASH };
    /// Bus interrupts that reach PMC.
    NV_PBUS_INTR_EN_0 @ 0x001140, reset 0, Handler, { 3:3 PRI_TIMEOUT, 2:2 PRI_FECSERR, 1:1 PRI_SQUASH };
    /// PCI Express version and speed capability.
    NV_PBUS_PCIE_CONTROL @ 0x00154c, reset 0x81, Scratch, { 7:7 FULL_SPEED, 0:0 VERSION };
    /// What PRAMIN shows: a window of 1 MiB at a multiple of 64 KiB.
    NV_PBUS_BAR0_WINDOW @ 0x001700, reset 0, Handler, { 25:24 TARGET, 23:0 BASE };
    /// Instance block whose page tables BAR1 goes through; physical mode addresses VRAM directly.
    NV_PBUS_BAR1_BLOCK @ 0x001704, reset 0, Handler, { 31:31 MODE_VIRTUAL, 29:28 TARGET, 27:0 PTR };
    /// State of the BAR1 and BAR3 binds; never pending here.
    NV_PBUS_BIND_STATUS @ 0x001710, reset 0, Constant, { 3:2 BAR2, 1:0 BAR1 };
    /// Instance block whose page tables BAR3 (called BAR2 by the vendor) goes through.
    NV_PBUS_BAR2_BLOCK @ 0x001714, reset 0, Handler, { 31:31 MODE_VIRTUAL, 30:30 HALVE, 29:28 TARGET, 27:0 PTR };
    /// Instance block of the peephole unit; not used.
    NV_PBUS_IFB_BLOCK @ 0x001718, reset 0, Scratch, { 31:31 MODE_VIRTUAL, 29:28 TARGET, 27:0 PTR };
    /// Flush of writes through the BARs. Writes land in order here: never busy.
    NV_UFLUSH_FB_FLUSH @ 0x070000, reset 0, Handler, { 1:1 OUTSTANDING, 0:0 PENDING };
    /// Invalidation of system memory in L2; no such cache is modelled: never busy.
    NV_UFLUSH_L2_SYSMEM_INVALIDATE @ 0x070004, reset 0, Handler, { 1:1 OUTSTANDING, 0:0 PENDING };
    /// Write-back of dirty L2 lines; no such cache is modelled: never busy.
    NV_UFLUSH_L2_FLUSH_DIRTY @ 0x070010, reset 0, Handler, { 1:1 OUTSTANDING, 0:0 PENDING };
}
