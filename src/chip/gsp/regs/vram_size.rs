//! The size of VRAM, as firmware of the card leaves it, from GA102 on.

crate::registers! {
    unit "GC6", source "open-gpu-kernel-modules ampere/ga102 dev_gc6_island.h; nouveau nvkm/subdev/fb/ga102.c";
    /// VRAM in MiB.
    NV_PGC6_AON_SECURE_SCRATCH_GROUP_42 @ 0x1183a4, reset 0, Handler, { 31:0 USABLE_FB_SIZE_IN_MB };
}
