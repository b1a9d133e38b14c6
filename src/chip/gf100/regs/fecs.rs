//! FECS, the front-end context-switch controller of PGRAPH. Its firmware is not interpreted; what the driver
//! asks of it (start, bind a context, save it) is carried out.

crate::registers! {
    unit "FECS", source "nouveau nvkm/engine/gr/{gf100,ctxgf100}.c, gr/fuc/hub.fuc; open-gpu-doc dev_graphics";
    /// Raises interrupts of the falcon. CHSW: a context switch is requested.
    NV_PGRAPH_PRI_FECS_INTR_SET @ 0x409000, reset 0, Handler, { 8:8 CHSW };
    /// Clears interrupts of the falcon.
    NV_PGRAPH_PRI_FECS_INTR_CLEAR @ 0x409004, reset 0, Handler, {};
    /// Interrupts of the falcon pending.
    NV_PGRAPH_PRI_FECS_INTR @ 0x409008, reset 0, Handler, {};
    /// Enables interrupts of the falcon.
    NV_PGRAPH_PRI_FECS_INTR_EN_SET @ 0x409010, reset 0, Handler, {};
    /// Disables interrupts of the falcon.
    NV_PGRAPH_PRI_FECS_INTR_EN_CLEAR @ 0x409014, reset 0, Handler, {};
    /// Interrupts of the falcon that are enabled.
    NV_PGRAPH_PRI_FECS_INTR_EN @ 0x409018, reset 0, Handler, {};
    /// Where interrupts of the falcon go.
    NV_PGRAPH_PRI_FECS_INTR_DISPATCH @ 0x40901c, reset 0, Scratch, {};
    /// Requests that the falcon takes.
    NV_PGRAPH_PRI_FECS_ACCESS_EN @ 0x409048, reset 0, Handler, { 1:1 CHSW, 0:0 FIFO };
    /// Busy parts of the falcon; none.
    NV_PGRAPH_PRI_FECS_IDLE_STATE @ 0x40904c, reset 0, Constant, {};
    /// Instance block that the falcon serves.
    NV_PGRAPH_PRI_FECS_CHANNEL_CURRENT @ 0x409050, reset 0, Scratch, { 30:30 VALID, 27:0 PTR };
    /// Number of the engine that the falcon drives.
    NV_PGRAPH_PRI_FECS_UNIT_INDEX @ 0x409084, reset 0, Scratch, {};
    /// Start and state of the falcon's core.
    NV_PGRAPH_PRI_FECS_CPU_CONTROL @ 0x409100, reset 0x10, Handler, { 4:4 HALTED, 1:1 START };
    /// Entry point of the falcon's code.
    NV_PGRAPH_PRI_FECS_ENTRY @ 0x409104, reset 0, Scratch, {};
    /// Sizes of the falcon's memories, in 256 and 256 bytes.
    NV_PGRAPH_PRI_FECS_HW_CONFIG @ 0x409108, reset 0x1040, Constant, { 17:9 DATA, 8:0 CODE };
    /// Scrubbing of the falcon's memories (done at once) and DMA settings.
    NV_PGRAPH_PRI_FECS_DMA_CONTROL @ 0x40910c, reset 0, Handler, { 2:2 CODE_SCRUB, 1:1 DATA_SCRUB, 0:0 BLOCK };
    /// Version of the falcon's core.
    NV_PGRAPH_PRI_FECS_HW_CONFIG_2 @ 0x40912c, reset 3, Constant, { 5:4 SECRET, 3:0 VERSION };
    /// Position of the code upload port.
    NV_PGRAPH_PRI_FECS_CODE_INDEX @ 0x409180, reset 0, Handler, { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR };
    /// Word at the code upload port.
    NV_PGRAPH_PRI_FECS_CODE_DATA @ 0x409184, reset 0, Handler, {};
    /// Virtual page of the code at the upload port.
    NV_PGRAPH_PRI_FECS_CODE_TAG @ 0x409188, reset 0, Handler, {};
    /// Position of the data upload port.
    NV_PGRAPH_PRI_FECS_DATA_INDEX @ 0x4091c0, reset 0, Handler, { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR };
    /// Word at the data upload port.
    NV_PGRAPH_PRI_FECS_DATA_DATA @ 0x4091c4, reset 0, Handler, {};
    /// Argument of a command to the firmware.
    NV_PGRAPH_PRI_FECS_METHOD_DATA @ 0x409500, reset 0, Handler, {};
    /// Command to the firmware.
    NV_PGRAPH_PRI_FECS_METHOD_PUSH @ 0x409504, reset 0, Handler, {
        11:0 ADR = {
            /// Makes the context of the instance block in the argument current.
            SET_CHAN: 0x01,
            /// Stops context switches.
            STOP_CTXSW: 0x38,
            /// Allows them again.
            START_CTXSW: 0x39,
        }
    };
    /// GPCs and memory partitions.
    NV_PGRAPH_PRI_FECS_UNIT_COUNT @ 0x409604, reset 0x2_0001, Constant, { 20:16 FBP, 4:0 GPC };
    /// Resets of the parts that the firmware switches.
    NV_PGRAPH_PRI_FECS_CTXSW_RESET_CTL @ 0x409614, reset 0x770, Scratch, {};
    /// Mailboxes between firmware and driver. In the first, DONE tells that the firmware is up, or a command
    /// over.
    NV_PGRAPH_PRI_FECS_CC_SCRATCH[8; 4] @ 0x409800, reset 0, Handler, { 31:31 DONE };
    /// Sets bits of the mailboxes.
    NV_PGRAPH_PRI_FECS_CC_SCRATCH_SET[8; 4] @ 0x409820, reset 0, Handler, {};
    /// Clears bits of the mailboxes.
    NV_PGRAPH_PRI_FECS_CC_SCRATCH_CLEAR[8; 4] @ 0x409840, reset 0, Handler, {};
    /// Instance block of the loaded context.
    NV_PGRAPH_PRI_FECS_CURRENT_CTX @ 0x409b00, reset 0, Handler, { 31:31 VALID, 29:28 TARGET, 27:0 PTR };
    /// Instance block of the context that comes next.
    NV_PGRAPH_PRI_FECS_NEXT_CTX @ 0x409b04, reset 0, Handler, { 31:31 VALID, 29:28 TARGET, 27:0 PTR };
    /// Interrupts of the firmware for the driver.
    NV_PGRAPH_PRI_FECS_HOST_INTR @ 0x409c18, reset 0, Handler, {};
    /// Clears them.
    NV_PGRAPH_PRI_FECS_HOST_INTR_CLEAR @ 0x409c20, reset 0, Handler, {};
    /// Those that reach PGRAPH.
    NV_PGRAPH_PRI_FECS_HOST_INTR_EN @ 0x409c24, reset 0, Scratch, {};
}
