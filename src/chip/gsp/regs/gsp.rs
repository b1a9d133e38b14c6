//! The GSP processor's registers that stay open to the driver once firmware runs, where FSP boots it.

crate::registers! {
    unit "GSP", source "open-gpu-kernel-modules hopper/gh100 dev_gsp.h, dev_falcon_v4.h; nouveau nvkm/subdev/gsp/gh100.c, gsp/rm/r535/gsp.c, falcon/ga100.c";
    /// Clears pending interrupts.
    NV_PGSP_FALCON_IRQSCLR @ 0x110004, reset 0, Handler, { 7:7 SWGEN1, 6:6 SWGEN0, 4:4 HALT };
    /// Interrupts pending. SWGEN0: the message queue has something new.
    NV_PGSP_FALCON_IRQSTAT @ 0x110008, reset 0, Handler, { 7:7 SWGEN1, 6:6 SWGEN0, 4:4 HALT };
    /// Interrupts that are let through to the core that is not RISC-V: none.
    NV_PGSP_FALCON_IRQMASK @ 0x110018, reset 0, Constant, {};
    /// Which of those go to the host.
    NV_PGSP_FALCON_IRQDEST @ 0x11001c, reset 0, Constant, {};
    /// First mailbox. 0 after a successful boot, bit 31 after an unload, another value is an error.
    NV_PGSP_FALCON_MAILBOX0 @ 0x110040, reset 0, Handler, { 31:0 DATA = { UNLOADED: 0x8000_0000 } };
    /// Second mailbox.
    NV_PGSP_FALCON_MAILBOX1 @ 0x110044, reset 0, Handler, { 31:0 DATA };
    /// Version of the firmware's bootloader, left here by the driver.
    NV_PGSP_FALCON_OS @ 0x110080, reset 0, Scratch, {};
    /// Health of the firmware, as a driver looks at it before each message: nothing to tell.
    NV_PGSP_FALCON_DEBUGINFO @ 0x110094, reset 0, Constant, {};
    /// Hardware configuration; the lock is open once firmware runs.
    NV_PGSP_FALCON_HWCFG2 @ 0x1100f4, reset 0, Handler, { 13:13 RISCV_BR_PRIV_LOCKDOWN, 10:10 RISCV };
}
