//! What is left of the classic units on every chip: straps and flushes.

crate::registers! {
    unit "HOST", source "open-gpu-kernel-modules maxwell/gm107 dev_flush.h; nouveau nvkm/engine/device/base.c, bar/g84.c";
    /// Flush of writes through the BARs. Writes land in order here: never busy.
    NV_UFLUSH_FB_FLUSH @ 0x070000, reset 0, Constant, { 1:1 OUTSTANDING, 0:0 PENDING };
    /// Straps.
    NV_PEXTDEV_BOOT_0 @ 0x101000, reset 0, Constant, {};
}
