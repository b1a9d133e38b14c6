//! PCE0, copy engine 0: a falcon that runs the driver's firmware. The firmware is not interpreted; a started
//! falcon that takes FIFO requests is a ready copy engine.

crate::registers! {
    unit "PCE0", source "nouveau nvkm/engine/ce/gf100.c, nvkm/engine/falcon.c";
    /// Raises interrupts of the falcon.
    NV_PCE0_INTR_SET @ 0x104000, reset 0, Handler, {};
    /// Clears interrupts of the falcon.
    NV_PCE0_INTR_CLEAR @ 0x104004, reset 0, Handler, {};
    /// Interrupts of the falcon pending.
    NV_PCE0_INTR @ 0x104008, reset 0, Handler, {};
    /// Enables interrupts of the falcon.
    NV_PCE0_INTR_EN_SET @ 0x104010, reset 0, Handler, {};
    /// Disables interrupts of the falcon.
    NV_PCE0_INTR_EN_CLEAR @ 0x104014, reset 0, Handler, {};
    /// Interrupts of the falcon that are enabled.
    NV_PCE0_INTR_EN @ 0x104018, reset 0, Handler, {};
    /// Where interrupts of the falcon go.
    NV_PCE0_INTR_DISPATCH @ 0x10401c, reset 0, Scratch, {};
    /// Requests that the falcon takes.
    NV_PCE0_ACCESS_EN @ 0x104048, reset 0, Handler, { 1:1 CHSW, 0:0 FIFO };
    /// Busy parts of the falcon; none.
    NV_PCE0_IDLE_STATE @ 0x10404c, reset 0, Constant, {};
    /// Instance block that the falcon serves.
    NV_PCE0_CHANNEL_CURRENT @ 0x104050, reset 0, Scratch, { 30:30 VALID, 27:0 PTR };
    /// Number of the engine that the falcon drives.
    NV_PCE0_UNIT_INDEX @ 0x104084, reset 0, Scratch, {};
    /// Start and state of the falcon's core.
    NV_PCE0_CPU_CONTROL @ 0x104100, reset 0x10, Handler, { 4:4 HALTED, 1:1 START };
    /// Entry point of the falcon's code.
    NV_PCE0_ENTRY @ 0x104104, reset 0, Scratch, {};
    /// Sizes of the falcon's memories, in 256 and 256 bytes.
    NV_PCE0_HW_CONFIG @ 0x104108, reset 0x1040, Constant, { 17:9 DATA, 8:0 CODE };
    /// Scrubbing of the falcon's memories (done at once) and DMA settings.
    NV_PCE0_DMA_CONTROL @ 0x10410c, reset 0, Handler, { 2:2 CODE_SCRUB, 1:1 DATA_SCRUB, 0:0 BLOCK };
    /// Version of the falcon's core.
    NV_PCE0_HW_CONFIG_2 @ 0x10412c, reset 3, Constant, { 5:4 SECRET, 3:0 VERSION };
    /// Position of the code upload port.
    NV_PCE0_CODE_INDEX @ 0x104180, reset 0, Handler, { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR };
    /// Word at the code upload port.
    NV_PCE0_CODE_DATA @ 0x104184, reset 0, Handler, {};
    /// Virtual page of the code at the upload port.
    NV_PCE0_CODE_TAG @ 0x104188, reset 0, Handler, {};
    /// Position of the data upload port.
    NV_PCE0_DATA_INDEX @ 0x1041c0, reset 0, Handler, { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR };
    /// Word at the data upload port.
    NV_PCE0_DATA_DATA @ 0x1041c4, reset 0, Handler, {};
}
