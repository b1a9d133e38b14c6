//! PTIMER: nanoseconds since some start. Its alarm belongs to GSP firmware.

crate::registers! {
    unit "PTIMER", source "open-gpu-doc dev_timer; open-gpu-kernel-modules hopper/gh100 dev_timer.h; nouveau nvkm/subdev/timer/{gk20a,nv04}.c";
    /// Timer interrupts that reach the CPU. Nothing raises one.
    NV_PTIMER_INTR_EN_0 @ 0x009140, reset 0, Scratch, { 0:0 ALARM };
    /// Time, low word: nanoseconds in steps of 32.
    NV_PTIMER_TIME_0 @ 0x009400, reset 0, Handler, { 31:5 NSEC };
    /// Time, high word.
    NV_PTIMER_TIME_1 @ 0x009410, reset 0, Handler, { 28:0 NSEC };
}
