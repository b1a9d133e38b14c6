//! The window to VRAM from Hopper on.

crate::registers! {
    unit "XAL", source "open-gpu-kernel-modules hopper/gh100 pri_nv_xal_ep.h; nouveau nvkm/subdev/instmem/gh100.c";
    /// Flush of what the L2 cache has not written yet: a token. Writes land in order here.
    NV_XAL_EP_UFLUSH_L2_FLUSH_DIRTY @ 0x10f810, reset 0, Constant, { 30:0 TOKEN };
    /// The token that is complete.
    NV_XAL_EP_UFLUSH_L2_FLUSH_DIRTY_COMPLETED @ 0x10f814, reset 0, Constant, { 31:31 STATUS, 30:0 TOKEN };
    /// What PRAMIN shows: a window of 1 MiB at a multiple of 64 KiB of VRAM.
    NV_XAL_EP_BAR0_WINDOW @ 0x10fd40, reset 0, Handler, { 21:0 BASE };
}
