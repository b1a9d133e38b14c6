//! The falcons that boot GSP on Turing to Ada.

/// Base of GSP's registers.
pub const GSP_BASE: u32 = 0x11_0000;

/// Base of SEC2's registers.
pub const SEC2_BASE: u32 = 0x84_0000;

/// Bytes of a falcon's instruction memory, and of its data memory. NV_PFALCON_FALCON_HWCFG says so.
pub const MEMORY_SIZE: usize = 64 << 10;

/// Bytes that a transfer of the falcon's DMA moves when SIZE is 0. Each step of SIZE doubles them.
pub const DMA_LEAST: usize = 4;
