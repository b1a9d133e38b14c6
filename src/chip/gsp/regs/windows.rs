//! The window in BAR0 that shows VRAM. Its content is no register; the entry names it for traces and
//! documents.

crate::registers! {
    unit "WINDOWS", source "open-gpu-doc dev_bus; nouveau nvkm/subdev/instmem/{nv50,gh100}.c";
    /// The VRAM that NV_XAL_EP_BAR0_WINDOW selects.
    NV_PRAMIN[0x40000; 4] @ 0x700000, reset 0, Handler, {};
}
