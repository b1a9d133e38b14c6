//! PMU, the power-management microcontroller. Its firmware is not interpreted: once started it reports its
//! message rings and takes every message without an answer.

crate::registers! {
    unit "PMU", source "nouveau nvkm/subdev/pmu/{gf100,gt215}.c";
    /// Raises interrupts of the falcon.
    NV_PPMU_INTR_SET @ 0x10a000, reset 0, Handler, {};
    /// Clears interrupts of the falcon.
    NV_PPMU_INTR_CLEAR @ 0x10a004, reset 0, Handler, {};
    /// Interrupts of the falcon pending.
    NV_PPMU_INTR @ 0x10a008, reset 0, Handler, {};
    /// Enables interrupts of the falcon.
    NV_PPMU_INTR_EN_SET @ 0x10a010, reset 0, Handler, {};
    /// Disables interrupts of the falcon.
    NV_PPMU_INTR_EN_CLEAR @ 0x10a014, reset 0, Handler, {};
    /// Interrupts of the falcon that are enabled.
    NV_PPMU_INTR_EN @ 0x10a018, reset 0, Handler, {};
    /// Where interrupts of the falcon go.
    NV_PPMU_INTR_DISPATCH @ 0x10a01c, reset 0, Scratch, {};
    /// Requests that the falcon takes.
    NV_PPMU_ACCESS_EN @ 0x10a048, reset 0, Handler, { 1:1 CHSW, 0:0 FIFO };
    /// Busy parts of the falcon; none.
    NV_PPMU_IDLE_STATE @ 0x10a04c, reset 0, Constant, {};
    /// Instance block that the falcon serves.
    NV_PPMU_CHANNEL_CURRENT @ 0x10a050, reset 0, Scratch, { 30:30 VALID, 27:0 PTR };
    /// Number of the engine that the falcon drives.
    NV_PPMU_UNIT_INDEX @ 0x10a084, reset 0, Scratch, {};
    /// Start and state of the falcon's core.
    NV_PPMU_CPU_CONTROL @ 0x10a100, reset 0x10, Handler, { 4:4 HALTED, 1:1 START };
    /// Entry point of the falcon's code.
    NV_PPMU_ENTRY @ 0x10a104, reset 0, Scratch, {};
    /// Sizes of the falcon's memories, in 256 and 256 bytes.
    NV_PPMU_HW_CONFIG @ 0x10a108, reset 0x1040, Constant, { 17:9 DATA, 8:0 CODE };
    /// Scrubbing of the falcon's memories (done at once) and DMA settings.
    NV_PPMU_DMA_CONTROL @ 0x10a10c, reset 0, Handler, { 2:2 CODE_SCRUB, 1:1 DATA_SCRUB, 0:0 BLOCK };
    /// Version of the falcon's core.
    NV_PPMU_HW_CONFIG_2 @ 0x10a12c, reset 3, Constant, { 5:4 SECRET, 3:0 VERSION };
    /// Position of the code upload port.
    NV_PPMU_CODE_INDEX @ 0x10a180, reset 0, Handler, { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR };
    /// Word at the code upload port.
    NV_PPMU_CODE_DATA @ 0x10a184, reset 0, Handler, {};
    /// Virtual page of the code at the upload port.
    NV_PPMU_CODE_TAG @ 0x10a188, reset 0, Handler, {};
    /// Position of the data upload port.
    NV_PPMU_DATA_INDEX @ 0x10a1c0, reset 0, Handler, { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR };
    /// Word at the data upload port.
    NV_PPMU_DATA_DATA @ 0x10a1c4, reset 0, Handler, {};
    /// Host to PMU ring: where the host writes next.
    NV_PPMU_QUEUE_HEAD @ 0x10a4a0, reset 0, Handler, {};
    /// Host to PMU ring: where the firmware reads next; messages are taken at once.
    NV_PPMU_QUEUE_TAIL @ 0x10a4b0, reset 0, Handler, {};
    /// PMU to host ring: where the firmware writes next; it never does.
    NV_PPMU_MSGQ_HEAD @ 0x10a4c8, reset 0, Constant, {};
    /// PMU to host ring: where the host reads next.
    NV_PPMU_MSGQ_TAIL @ 0x10a4cc, reset 0, Scratch, {};
    /// Host to PMU ring: place and size, set by the started firmware.
    NV_PPMU_RING_TO_PMU @ 0x10a4d0, reset 0, Handler, { 31:16 SIZE, 15:0 BASE };
    /// PMU to host ring: place and size, set by the started firmware.
    NV_PPMU_RING_TO_HOST @ 0x10a4dc, reset 0, Handler, { 31:16 SIZE, 15:0 BASE };
    /// What rests now: a bit for each engine (envytools, "Idle counters"; there it is COUNTER_SIGNALS).
    NV_PPMU_IDLE_STATUS @ 0x10a500, reset 0xffffffff, Handler, { 20:20 CE1, 19:19 CE0, 0:0 GR };
    /// Bits of the status that a counter watches.
    NV_PPMU_IDLE_MASK[8; 0x10] @ 0x10a504, reset 0, Handler, { 20:20 CE1, 19:19 CE0, 0:0 GR };
    /// Clock ticks that a counter has counted.
    NV_PPMU_IDLE_COUNT[8; 0x10] @ 0x10a508, reset 0, Handler, { 31:31 RESET, 30:0 VALUE };
    /// When a counter counts: while all that it watches rests, while all of it works, or always with both
    /// bits.
    NV_PPMU_IDLE_CTRL[8; 0x10] @ 0x10a50c, reset 0, Handler, { 1:1 BUSY, 0:0 IDLE };
    /// Who may use the data port.
    NV_PPMU_MUTEX @ 0x10a580, reset 0, Scratch, {};
}
