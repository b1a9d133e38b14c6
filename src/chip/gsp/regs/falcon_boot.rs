//! What a driver reads and leaves behind when it boots GSP by falcons (Turing to Ada): the window to VRAM,
//! errors of FWSEC, the protected region, fuses of firmware, the card's own firmware.

crate::registers! {
    unit "FALCON BOOT", source "open-gpu-kernel-modules turing/tu102 dev_bus.h, dev_fb.h, ampere/ga102 dev_gc6_island.h; nouveau nvkm/subdev/gsp/{tu102,ga102}.c, fwsec.c, devinit/tu102.c, instmem/nv50.c, fb/gf100.c, pci/g92.c, nouveau_reg.h; nova-core regs.rs";
    /// Scratch of the VBIOS and of FWSEC, by number. The first of two that a driver reads, 0x0e: bits 31:16
    /// are the error of FRTS. The second, 0x15: bits 15:0 are that of SB.
    NV_PBUS_SW_SCRATCH[64; 4] @ 0x001400, reset 0, Handler, { 31:16 FRTS_ERR_CODE, 15:0 SB_ERR_CODE };
    /// What PRAMIN shows: a window of 1 MiB at a multiple of 64 KiB of VRAM.
    NV_PBUS_BAR0_WINDOW @ 0x001700, reset 0, Handler, { 25:24 TARGET, 23:0 BASE };
    /// In the mirror of configuration space: whether the ROM is shown. Not used here.
    NV_XVE_ROM_CTRL @ 0x088050, reset 0, Scratch, { 0:0 ROM_SHADOW };
    /// In the mirror of configuration space: a driver writes it when it has taken a message. Not used here.
    NV_XVE_CYA_2 @ 0x088704, reset 0, Scratch, {};
    /// System memory page that flushes read, address bits 39:8. Not used here.
    NV_PFB_NISO_FLUSH_SYSMEM_ADDR @ 0x100c10, reset 0, Scratch, { 31:0 ADR_39_08 };
    /// The same, address bits 63:40.
    NV_PFB_NISO_FLUSH_SYSMEM_ADDR_HI @ 0x100c40, reset 0, Scratch, { 23:0 ADR_63_40 };
    /// Who may read the next register: a driver.
    NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_PRIV_LEVEL_MASK @ 0x118128, reset 0x1, Constant, { 0:0 READ_PROTECTION_LEVEL0 };
    /// Progress of the card's own firmware. 0xff: complete.
    NV_PGC6_AON_SECURE_SCRATCH_GROUP_05_0_GFW_BOOT @ 0x118234, reset 0xff, Constant, { 7:0 PROGRESS };
    /// First page of the write-protected region 2, address bits 39:12.
    NV_PFB_PRI_MMU_WPR2_ADDR_LO @ 0x1fa824, reset 0, Handler, { 31:4 VAL };
    /// Its end. 0 while there is no such region.
    NV_PFB_PRI_MMU_WPR2_ADDR_HI @ 0x1fa828, reset 0, Handler, { 31:4 VAL };
    /// Index and data of VGA's registers. There is no VGA.
    NV_PRMCIO_CRX__COLOR @ 0x6013d4, reset 0, Scratch, {};
    /// Least version that firmware for SEC2 must have, by number of the firmware.
    NV_FUSE_OPT_FPF_SEC2_UCODE1_VERSION[16; 4] @ 0x824140, reset 0, Constant, { 15:0 DATA };
    /// Least version that firmware for GSP's falcon must have, by number of the firmware.
    NV_FUSE_OPT_FPF_GSP_UCODE1_VERSION[16; 4] @ 0x8241c0, reset 0, Constant, { 15:0 DATA };
}

/// The VBIOS.
pub mod prom {
    crate::registers! {
        unit "PROM", source "open-gpu-kernel-modules nvswitch/lr10 dev_ext_devices.h (the window is where it always was); nouveau nvkm/subdev/bios/shadowrom.c";
        /// The VBIOS, of which only what boots GSP is there. Ones behind its end.
        NV_PROM_DATA[0x40000; 4] @ 0x300000, reset 0, Handler, {};
    }
}
