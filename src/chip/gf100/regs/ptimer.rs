//! PTIMER: nanoseconds since some start, and one alarm.

crate::registers! {
    unit "PTIMER", source "open-gpu-doc dev_timer; nouveau nvkm/subdev/timer/{nv04,nv41}.c, regsnv04.h";
    /// Address of the register access that failed last, for the bus interrupt.
    NV_PTIMER_PRI_TIMEOUT_SAVE_0 @ 0x009084, reset 0, Scratch, { 23:2 ADDR, 1:1 WRITE };
    /// Data of that access.
    NV_PTIMER_PRI_TIMEOUT_SAVE_1 @ 0x009088, reset 0, Scratch, {};
    /// Timer interrupts pending.
    NV_PTIMER_INTR_0 @ 0x009100, reset 0, Handler, { 0:0 ALARM };
    /// Timer interrupts that reach PMC.
    NV_PTIMER_INTR_EN_0 @ 0x009140, reset 0, Handler, { 0:0 ALARM };
    /// Clock ratio, numerator. The model counts nanoseconds whatever is set.
    NV_PTIMER_NUMERATOR @ 0x009200, reset 0, Scratch, { 15:0 VALUE };
    /// Clock ratio, denominator.
    NV_PTIMER_DENOMINATOR @ 0x009210, reset 0, Scratch, { 15:0 VALUE };
    /// Clock ratio, multiplier.
    NV_PTIMER_MULTIPLIER @ 0x009220, reset 0, Scratch, { 7:0 VALUE };
    /// Time, low word: nanoseconds in steps of 32.
    NV_PTIMER_TIME_0 @ 0x009400, reset 0, Handler, { 31:5 NSEC };
    /// Time, high word.
    NV_PTIMER_TIME_1 @ 0x009410, reset 0, Handler, { 28:0 NSEC };
    /// Low word of the time at which the alarm interrupt is raised.
    NV_PTIMER_ALARM_0 @ 0x009420, reset 0, Handler, { 31:5 NSEC };
}
