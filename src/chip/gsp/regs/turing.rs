//! What differs from family to family: Turing.

/// GSP's RISC-V core, which is another one than later chips have.
pub mod gsp_core {
    crate::registers! {
        unit "TURING GSP CORE", source "open-gpu-kernel-modules turing/tu102 dev_riscv_pri.h; nouveau nvkm/subdev/gsp/tu102.c, falcon/tu102.c";
        /// Which core runs.
        NV_PGSP_RISCV_CORE_SWITCH_RISCV_STATUS @ 0x111240, reset 0, Handler, { 0:0 ACTIVE_STAT };
        /// Interrupts that reach the CPU.
        NV_PGSP_RISCV_IRQMASK @ 0x1112b4, reset 0x40, Constant, { 7:7 SWGEN1, 6:6 SWGEN0, 4:4 HALT };
        /// Interrupts that go to the host.
        NV_PGSP_RISCV_IRQDEST @ 0x1112b8, reset 0x40, Constant, { 7:7 SWGEN1, 6:6 SWGEN0, 4:4 HALT };
    }
}

/// The size of VRAM.
pub mod vram_size {
    crate::registers! {
        unit "TURING FB", source "open-gpu-kernel-modules turing/tu102 dev_fb.h; nouveau nvkm/subdev/fb/gp102.c";
        /// VRAM: a number of MiB, times two to the power of a scale.
        NV_PFB_PRI_MMU_LOCAL_MEMORY_RANGE @ 0x100ce0, reset 0, Handler, { 9:4 LOWER_MAG, 3:0 LOWER_SCALE };
    }
}

/// Fuses.
pub mod fuse {
    crate::registers! {
        unit "TURING FUSE", source "open-gpu-kernel-modules turing/tu102 dev_fuse.h; nouveau nvkm/subdev/devinit/tu102.c, gm107.c";
        /// Display is complete or not; not read when there is none.
        NV_FUSE_STATUS_OPT_DISPLAY_HEADS @ 0x021c00, reset 0, Constant, {};
        /// There is no display.
        NV_FUSE_STATUS_OPT_DISPLAY @ 0x021c04, reset 0x1, Constant, { 0:0 DISABLE };
    }
}
