//! Windows in BAR0 that show memory: the VBIOS and a moving window of VRAM. Their contents are not registers;
//! the entries name them for traces and documents.

crate::registers! {
    unit "WINDOWS", source "open-gpu-doc dev_bus; nouveau nvkm/subdev/bios/shadowrom.c, instmem/nv50.c";
    /// VBIOS image.
    NV_PROM[0x40000; 4] @ 0x300000, reset 0, Handler, {};
    /// The VRAM that NV_PBUS_BAR0_WINDOW selects.
    NV_PRAMIN[0x40000; 4] @ 0x700000, reset 0, Handler, {};
}
