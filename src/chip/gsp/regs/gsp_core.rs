//! GSP's RISC-V core and its interrupt, from GA102 on.

crate::registers! {
    unit "GSP CORE", source "open-gpu-kernel-modules hopper/gh100 dev_falcon_v4.h, ampere/ga102 dev_riscv_pri.h; nouveau nvkm/subdev/gsp/ga102.c, falcon/ga100.c";
    /// Raises the interrupt towards the CPU again when something is still pending.
    NV_PGSP_FALCON_INTR_RETRIGGER @ 0x1103e8, reset 0, Handler, { 0:0 TRIGGER };
    /// State of the RISC-V core.
    NV_PGSP_RISCV_CPUCTL @ 0x111388, reset 0, Handler, { 7:7 ACTIVE_STAT, 5:5 STOPPED, 4:4 HALTED, 0:0 STARTCPU };
    /// Interrupts that reach the CPU.
    NV_PGSP_RISCV_IRQMASK @ 0x111528, reset 0x40, Constant, { 7:7 SWGEN1, 6:6 SWGEN0, 4:4 HALT };
    /// Interrupts that go to the host.
    NV_PGSP_RISCV_IRQDEST @ 0x11152c, reset 0x40, Constant, { 7:7 SWGEN1, 6:6 SWGEN0, 4:4 HALT };
}
