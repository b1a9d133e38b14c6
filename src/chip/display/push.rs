//! Push buffers of the display engine's channels.

crate::fields! {
    /// A word that begins methods, or jumps.
    NV_DISP_DMA {
        31:29 OPCODE = { METHOD: 0, JUMP: 1, NONINC_METHOD: 2, SET_SUBDEVICE_MASK: 3 },
        27:18 METHOD_COUNT,
        /// In words.
        13:2 METHOD_OFFSET,
    }
    /// A word that jumps.
    NV_DISP_DMA_JUMP {
        /// In words.
        11:2 OFFSET
    }
    /// How far the driver has written a push buffer, in words.
    NV_DISP_PUT { 11:2 PTR }
    /// How far it was read, in words.
    NV_DISP_GET { 11:2 PTR }
    /// Room of a channel that takes methods by its registers.
    NV_DISP_FREE { 5:0 COUNT }
}

/// Bytes of a push buffer.
pub const BYTES: usize = 0x1000;
/// Words of a push buffer.
pub const WORDS: usize = BYTES / 4;

/// Offsets of a channel's own registers among its methods' window.
pub const PUT: u32 = 0x0;
/// How far it was read.
pub const GET: u32 = 0x4;
/// Room of a channel without push buffer.
pub const FREE: u32 = 0x8;
