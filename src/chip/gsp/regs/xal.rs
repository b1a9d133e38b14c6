//! The window to VRAM from Hopper on.

crate::registers! {
    unit "XAL", source "open-gpu-kernel-modules hopper/gh100 pri_nv_xal_ep.h; nouveau nvkm/subdev/instmem/gh100.c";
    /// What PRAMIN shows: a window of 1 MiB at a multiple of 64 KiB of VRAM.
    NV_XAL_EP_BAR0_WINDOW @ 0x10fd40, reset 0, Handler, { 21:0 BASE };
}
