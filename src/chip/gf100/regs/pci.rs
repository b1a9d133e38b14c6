//! The mirror of PCI configuration space in BAR0, and the registers that only the mirror shows.

crate::registers! {
    unit "PCI", source "open-gpu-doc dev_nv_xve; nouveau nvkm/subdev/pci/{g84,gf100}.c, bios/shadowramin.c";
    /// Configuration space header and capabilities: the same bits as through the bus.
    NV_XVE[20; 4] @ 0x088000, reset 0, Handler, {};
    /// Hides the PROM window behind the ROM shadow.
    NV_XVE_ROM_CTRL @ 0x088050, reset 0, Scratch, { 0:0 ROM_SHADOW };
    /// Configuration space from 0x54 on.
    NV_XVE_CAPABILITIES[43; 4] @ 0x088054, reset 0, Handler, {};
    /// PCI Express link settings beyond the standard ones.
    NV_XVE_LINK_CONTROL_PRIVATE @ 0x088460, reset 0, Scratch, {};
    /// A byte written here lets the next message interrupt out.
    NV_XVE_MSI_REARM @ 0x088704, reset 0, Handler, { 7:0 REARM };
}
