//! The function's own registers (VFN): its interrupt tree, TLB invalidation, and the page that user mode
//! maps.
//!
//! The interrupt tree has leaves of 32 vectors, of which two make a bit of the top word.

crate::registers! {
    unit "VFN", source "open-gpu-kernel-modules hopper/gh100 dev_vm.h, ampere/ga100 dev_vm.h, turing/tu102 dev_vm.h; nouveau nvkm/subdev/vfn/tu102.c, mmu/vmmtu102.c, engine/fifo/ga100.c";
    /// Vectors pending; a written 1 clears one.
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF[16; 4] @ 0xb81000, reset 0, Handler, { 31:0 VALUE };
    /// Enables vectors; reads which are.
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET[16; 4] @ 0xb81200, reset 0, Handler, { 31:0 VALUE };
    /// Disables vectors; reads which are enabled.
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR[16; 4] @ 0xb81400, reset 0, Handler, { 31:0 VALUE };
    /// Pairs of leaves with an enabled vector pending.
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP @ 0xb81600, reset 0, Handler, { 31:0 VALUE };
    /// Lets pairs of leaves interrupt, and allows the next message.
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET @ 0xb81608, reset 0, Handler, { 31:0 VALUE };
    /// Keeps pairs of leaves from interrupting.
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR @ 0xb81610, reset 0, Handler, { 31:0 VALUE };
    /// Raises a vector, as its source does: a driver tries out its interrupt by it.
    NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_TRIGGER @ 0xb81640, reset 0, Handler, { 11:0 VECTOR };
    /// Page directory whose translations an invalidation drops: address bits 39:12.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB @ 0xb830a0, reset 0, Handler, { 31:4 ADDR, 1:1 APERTURE };
    /// The same, address bits 59:40.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB @ 0xb830a4, reset 0, Handler, { 19:0 ADDR };
    /// Starts an invalidation of the TLBs. It is complete when the write is: the trigger reads 0.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE @ 0xb830b0, reset 0, Handler, { 31:31 TRIGGER, 26:24 CACHE_LEVEL, 8:7 ACK, 6:6 SYS_MEMBAR, 5:3 REPLAY, 2:2 HUBTLB_ONLY, 1:1 ALL_PDB, 0:0 ALL_VA };
    /// The timer's low word, for user mode.
    NV_VIRTUAL_FUNCTION_TIME_0 @ 0xbb0080, reset 0, Handler, { 31:5 NSEC };
    /// The timer's high word, for user mode.
    NV_VIRTUAL_FUNCTION_TIME_1 @ 0xbb0084, reset 0, Handler, { 28:0 NSEC };
    /// A channel has new work: its GP_PUT was written to its USERD.
    NV_VIRTUAL_FUNCTION_DOORBELL @ 0xbb0090, reset 0, Handler, { 31:16 RUNLIST, 15:0 CHID };
}
