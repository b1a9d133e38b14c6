//! Buffers that the MMU reports faults and access counts in, and what else NVIDIA's own driver touches of the
//! function. Nothing is ever reported there: the buffers stay empty.

crate::registers! {
    unit "VFN FAULTS", source "open-gpu-kernel-modules hopper/gh100 dev_vm.h, turing/tu102 dev_vm.h; kernel-open/nvidia-uvm volta, turing";
    /// Flush of cached system memory: a token. None is under way, ever.
    NV_VIRTUAL_FUNCTION_PRIV_FUNC_L2_SYSMEM_INVALIDATE @ 0xb80f10, reset 0, Constant, { 30:0 TOKEN };
    /// The token that is complete.
    NV_VIRTUAL_FUNCTION_PRIV_FUNC_L2_SYSMEM_INVALIDATE_COMPLETED @ 0xb80f14, reset 0, Constant, { 31:31 STATUS, 30:0 TOKEN };
    /// BAR1's instance block. BAR1 is GSP's affair: this does nothing.
    NV_VIRTUAL_FUNCTION_PRIV_FUNC_BAR1_BLOCK_LOW_ADDR @ 0xb80f60, reset 0, Fields, { 31:12 PTR, 11:10 TARGET, 9:9 MODE };
    /// The same, upper bits.
    NV_VIRTUAL_FUNCTION_PRIV_FUNC_BAR1_BLOCK_HIGH_ADDR @ 0xb80f64, reset 0, Scratch, { 31:0 PTR };
    /// BAR2's instance block. BAR2 is GSP's affair: this does nothing.
    NV_VIRTUAL_FUNCTION_PRIV_FUNC_BAR2_BLOCK_LOW_ADDR @ 0xb80f70, reset 0, Fields, { 31:12 PTR, 11:10 TARGET, 9:9 MODE };
    /// The same, upper bits.
    NV_VIRTUAL_FUNCTION_PRIV_FUNC_BAR2_BLOCK_HIGH_ADDR @ 0xb80f74, reset 0, Fields, { 19:0 PTR };
    /// Buffers for faults that end a channel, and for those that can be repeated: address bits 31:0.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_LO[2; 0x20] @ 0xb83000, reset 0, Scratch, {};
    /// The same, address bits 63:32.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_HI[2; 0x20] @ 0xb83004, reset 0, Scratch, {};
    /// First entry that the driver has not read. A one in bit 31 or 30 clears an error; there is none.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_GET[2; 0x20] @ 0xb83008, reset 0, Fields, { 19:0 PTR };
    /// First entry that is free: the first of all.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_PUT[2; 0x20] @ 0xb8300c, reset 0, Constant, { 31:31 OVERFLOW, 30:30 GETPTR_CORRUPTED, 19:0 PTR };
    /// Entries, and whether the buffer is in use. A one in bit 30 asks for a usual size; there is none.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_FAULT_BUFFER_SIZE[2; 0x20] @ 0xb83010, reset 0, Fields, { 31:31 ENABLE, 29:29 OVERFLOW_INTR, 19:0 VAL };
    /// What becomes of faults. Not used here.
    NV_VIRTUAL_FUNCTION_PRIV_MMU_PAGE_FAULT_CTRL @ 0xb83070, reset 0, Scratch, {};
    /// When accesses are reported. Not used here.
    NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_CONFIG @ 0xb83100, reset 0x80, Scratch, { 19:18 MOMC_GRANULARITY, 17:16 MIMC_GRANULARITY, 15:0 THRESHOLD };
    /// Buffer for reports of accesses: address bits 31:12, and whether it is in use.
    NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_LO @ 0xb83108, reset 0, Fields, { 31:12 BASE, 0:0 EN };
    /// The same, address bits 63:32.
    NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_HI @ 0xb8310c, reset 0, Scratch, {};
    /// Entries of 32 bytes that the buffer must have: 64 pages of them, as many as GSP is ever told.
    NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_SIZE @ 0xb83110, reset 0x2000, Constant, {};
    /// First entry that the driver has not read.
    NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_GET @ 0xb83114, reset 0, Scratch, {};
    /// First entry that is free: the first of all.
    NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_PUT @ 0xb83118, reset 0, Constant, {};
    /// Whether the buffer is full, and all that was reported has arrived.
    NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_INFO @ 0xb8311c, reset 0x2, Constant, { 24:24 WRITE_NACK, 1:1 PUSHED, 0:0 FULL };
}
