//! The display engine, where there is none: its registers read 0, and writes are dropped. Where a vGPU has a
//! head, its unit answers for them.

crate::registers! {
    unit "PDISP", source "open-gpu-kernel-modules swref/published/disp/v03_00/dev_disp.h; nouveau nvkm/engine/disp/{gv100,r535}.c";
    /// Events of heads; a written 1 takes one back.
    NV_PDISP_FE_EVT_STAT_HEAD_TIMING[8; 4] @ 0x611800, reset 0, Constant, { 1:1 VBLANK };
    /// Events of heads that interrupt.
    NV_PDISP_FE_RM_INTR_STAT_HEAD_TIMING[8; 4] @ 0x611c00, reset 0, Constant, { 1:1 VBLANK };
    /// Which events of heads interrupt.
    NV_PDISP_FE_RM_INTR_EN_HEAD_TIMING[8; 4] @ 0x611d80, reset 0, Constant, { 1:1 VBLANK };
    /// What interrupts.
    NV_PDISP_FE_RM_INTR_DISPATCH @ 0x611ec0, reset 0, Constant, { 7:0 HEAD_TIMING };
    /// The line that a head is at.
    NV_PDISP_RG_DPCA[8; 0x800] @ 0x616330, reset 0, Constant, { 31:16 FRM_CNT, 15:0 LINE_CNT };
    /// The pixel that a head is at, of that line.
    NV_PDISP_RG_DPCB[8; 0x800] @ 0x616334, reset 0, Constant, { 15:0 PIXEL_CNT };
    /// What the display engine can do.
    NV_PDISP_FE_SW[0x400; 4] @ 0x640000, reset 0, Constant, {};
    /// The core channel: how far its push buffer was written and read, methods that were set, and from 0x8000
    /// on those that took effect.
    NV_UDISP_CORE[0x4000; 4] @ 0x680000, reset 0, Constant, {};
    /// Channels of windows: how far their push buffers were written and read.
    NV_UDISP_WINDOW[0x800; 4] @ 0x690000, reset 0, Constant, {};
    /// Their immediate channels.
    NV_UDISP_WINDOW_IMM[0x800; 4] @ 0x6b0000, reset 0, Constant, {};
    /// The cursor's channel.
    NV_UDISP_CURSOR[0x400; 4] @ 0x6d8000, reset 0, Constant, {};
}
