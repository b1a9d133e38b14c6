//! What is burned or flashed on a card. Nothing of a board is modelled: all of it is blank, and nothing
//! changes it.

crate::registers! {
    unit "BOARD", source "open-gpu-kernel-modules ampere/ga100 dev_fuse.h, nvswitch/lr10 dev_ext_devices.h (the window is where it always was)";
    /// The VBIOS, which drivers of this chip get from firmware instead.
    NV_PROM_DATA[0x40000; 4] @ 0x300000, reset 0, Denied, {};
    /// Fuses; all blank.
    NV_FUSE[0x1400; 4] @ 0x820000, reset 0, Denied, {};
}
