//! What differs from family to family: Ampere and Ada.

/// Fuses.
pub mod fuse {
    crate::registers! {
        unit "AMPERE FUSE", source "open-gpu-kernel-modules ampere/ga100 dev_fuse.h; nouveau nvkm/subdev/devinit/ga100.c";
        /// There is no display.
        NV_FUSE_STATUS_OPT_DISPLAY @ 0x820c04, reset 0x1, Constant, { 0:0 DISABLE };
    }
}
