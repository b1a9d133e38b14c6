//! GPCCS, the context-switch controllers of the GPCs, all at once (broadcast). Started by FECS.

crate::registers! {
    unit "GPCCS", source "nouveau nvkm/engine/gr/gf100.c, gr/fuc/gpc.fuc";
    /// Raises interrupts of the falcon.
    NV_PGRAPH_PRI_GPCCS_INTR_SET @ 0x41a000, reset 0, Handler, {};
    /// Clears interrupts of the falcon.
    NV_PGRAPH_PRI_GPCCS_INTR_CLEAR @ 0x41a004, reset 0, Handler, {};
    /// Interrupts of the falcon pending.
    NV_PGRAPH_PRI_GPCCS_INTR @ 0x41a008, reset 0, Handler, {};
    /// Enables interrupts of the falcon.
    NV_PGRAPH_PRI_GPCCS_INTR_EN_SET @ 0x41a010, reset 0, Handler, {};
    /// Disables interrupts of the falcon.
    NV_PGRAPH_PRI_GPCCS_INTR_EN_CLEAR @ 0x41a014, reset 0, Handler, {};
    /// Interrupts of the falcon that are enabled.
    NV_PGRAPH_PRI_GPCCS_INTR_EN @ 0x41a018, reset 0, Handler, {};
    /// Where interrupts of the falcon go.
    NV_PGRAPH_PRI_GPCCS_INTR_DISPATCH @ 0x41a01c, reset 0, Scratch, {};
    /// Requests that the falcon takes.
    NV_PGRAPH_PRI_GPCCS_ACCESS_EN @ 0x41a048, reset 0, Handler, { 1:1 CHSW, 0:0 FIFO };
    /// Busy parts of the falcon; none.
    NV_PGRAPH_PRI_GPCCS_IDLE_STATE @ 0x41a04c, reset 0, Constant, {};
    /// Instance block that the falcon serves.
    NV_PGRAPH_PRI_GPCCS_CHANNEL_CURRENT @ 0x41a050, reset 0, Scratch, { 30:30 VALID, 27:0 PTR };
    /// Number of the engine that the falcon drives.
    NV_PGRAPH_PRI_GPCCS_UNIT_INDEX @ 0x41a084, reset 0, Scratch, {};
    /// Start and state of the falcon's core.
    NV_PGRAPH_PRI_GPCCS_CPU_CONTROL @ 0x41a100, reset 0x10, Handler, { 4:4 HALTED, 1:1 START };
    /// Entry point of the falcon's code.
    NV_PGRAPH_PRI_GPCCS_ENTRY @ 0x41a104, reset 0, Scratch, {};
    /// Sizes of the falcon's memories, in 256 and 256 bytes.
    NV_PGRAPH_PRI_GPCCS_HW_CONFIG @ 0x41a108, reset 0x1040, Constant, { 17:9 DATA, 8:0 CODE };
    /// Scrubbing of the falcon's memories (done at once) and DMA settings.
    NV_PGRAPH_PRI_GPCCS_DMA_CONTROL @ 0x41a10c, reset 0, Handler, { 2:2 CODE_SCRUB, 1:1 DATA_SCRUB, 0:0 BLOCK };
    /// Version of the falcon's core.
    NV_PGRAPH_PRI_GPCCS_HW_CONFIG_2 @ 0x41a12c, reset 3, Constant, { 5:4 SECRET, 3:0 VERSION };
    /// Position of the code upload port.
    NV_PGRAPH_PRI_GPCCS_CODE_INDEX @ 0x41a180, reset 0, Handler, { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR };
    /// Word at the code upload port.
    NV_PGRAPH_PRI_GPCCS_CODE_DATA @ 0x41a184, reset 0, Handler, {};
    /// Virtual page of the code at the upload port.
    NV_PGRAPH_PRI_GPCCS_CODE_TAG @ 0x41a188, reset 0, Handler, {};
    /// Position of the data upload port.
    NV_PGRAPH_PRI_GPCCS_DATA_INDEX @ 0x41a1c0, reset 0, Handler, { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR };
    /// Word at the data upload port.
    NV_PGRAPH_PRI_GPCCS_DATA_DATA @ 0x41a1c4, reset 0, Handler, {};
}
