//! Straps, fuses, GPIO, fan, clock and display registers that drivers read at start-up. Nothing of a board is
//! modelled: no display output, no fan, no clock to set; the values say so.

crate::registers! {
    unit "BOARD", source "nouveau nvkm/subdev/{devinit,gpio,therm,fuse,clk,volt,pci}; envytools rnndb";
    /// GPIO: interrupts of the first bank.
    NV_GPIO_INTR_0[2; 4] @ 0x00e050, reset 0, Scratch, {};
    /// GPIO: levels of lines 0 to 15.
    NV_GPIO_LINES @ 0x00e068, reset 0, Scratch, {};
    /// GPIO: levels of lines 16 to 31.
    NV_GPIO_LINES_1 @ 0x00e06c, reset 0, Scratch, {};
    /// GPIO: interrupt masks.
    NV_GPIO_INTR_MASK[2; 4] @ 0x00e070, reset 0, Scratch, {};
    /// Fan control.
    NV_GPIO_FAN[3; 4] @ 0x00e720, reset 0, Scratch, {};
    /// Thermal sensor: interrupts.
    NV_THERM_INTR_EN @ 0x020000, reset 0, Scratch, {};
    /// Thermal sensor: interrupts pending.
    NV_THERM_INTR @ 0x020100, reset 0, WriteOneToClear, {};
    /// Opens the fuse block for reading.
    NV_FUSE_CTRL @ 0x021000, reset 0, Scratch, { 0:0 ENABLE };
    /// Fuses; all blank.
    NV_FUSE[256; 4] @ 0x021100, reset 0, Constant, {};
    /// Clock of the fuse block.
    NV_FUSE_CLOCK @ 0x022400, reset 0, Scratch, { 11:11 ENABLE };
    /// Set when firmware initialised the device already: no init scripts need to run.
    NV_DEVINIT_STATUS @ 0x02240c, reset 0x2, Constant, { 1:1 DONE };
    /// PCI strap settings.
    NV_STRAP_PCI @ 0x02241c, reset 0x1, Scratch, {};
    /// GPC and TPC population as fused.
    NV_PTOP_GPC_COUNTS[2; 4] @ 0x022430, reset 0, Constant, {};
    /// Engines that are fused off. Display is.
    NV_FUSE_STATUS_OPT @ 0x022500, reset 0x1, Constant, {
        9:9 PCE1, 8:8 PCE0, 3:3 PMSENC, 2:2 PMSVLD, 1:1 PMSPDEC_PMSPPP, 0:0 PDISP
    };
    /// Further fuses, after the engines'; all blank.
    NV_FUSE_OPT[20; 4] @ 0x022504, reset 0, Constant, {};
    /// Further fuses, after the memory partitions'; all blank.
    NV_FUSE_OPT_1[42; 4] @ 0x022558, reset 0, Constant, {};
    /// Board straps: crystal of 25 MHz, RAM configuration 0.
    NV_PEXTDEV_BOOT_0 @ 0x101000, reset 0x0040_0040, Scratch, { 22:22 CRYSTAL_HI, 6:6 CRYSTAL_LO, 5:2 RAMCFG };
    /// Memory clock settings; the reset values say that no PLL runs.
    NV_PCLOCK_MEMORY[64; 4] @ 0x132000, reset 0, Scratch, {};
    /// Clock tree of the engines.
    NV_PCLOCK[256; 4] @ 0x137000, reset 0, Scratch, {};
    /// VGA CRTC index and data ports (bytes).
    NV_PDISP_VGA_CRTC @ 0x6013d4, reset 0, Scratch, { 15:8 DATA, 7:0 INDEX };
    /// Where the VGA part of the display found the VBIOS; not enabled.
    NV_PDISP_VGA_BASE @ 0x619f04, reset 0, Scratch, { 31:8 ADDR, 3:3 ENABLE };
}
