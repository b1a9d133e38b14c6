//! Methods of the core channel (`NVC37D` to `NVC77D`), as byte offsets.

/// Bytes of its methods.
pub const BYTES: u32 = 0x4000;

/// All that was set takes effect.
pub const UPDATE: u32 = 0x200;
/// Handle of the memory for notifications.
pub const SET_CONTEXT_DMA_NOTIFIER: u32 = 0x208;
/// Where in it, and whether.
pub const SET_NOTIFIER_CONTROL: u32 = 0x20c;
/// Cursors whose updates it waits for.
pub const SET_INTERLOCK_FLAGS: u32 = 0x218;
/// Windows whose updates it waits for, a bit each.
pub const SET_WINDOW_INTERLOCK_FLAGS: u32 = 0x21c;

/// An output resource's control.
pub const fn sor_set_control(sor: u32) -> u32 {
    0x300 + 0x20 * sor
}

/// A window's owner.
pub const fn window_set_control(window: u32) -> u32 {
    0x1000 + 0x80 * window
}

/// A head's method.
pub const fn head(head: u32, method: u32) -> u32 {
    0x2000 + 0x400 * head + method
}

/// How a head's pixels go to its output.
pub const HEAD_SET_CONTROL_OUTPUT_RESOURCE: u32 = 0x04;
/// Whether it is interlaced.
pub const HEAD_SET_CONTROL: u32 = 0x08;
/// Pixels a second.
pub const HEAD_SET_PIXEL_CLOCK_FREQUENCY: u32 = 0x0c;
/// The pixels that it takes of its windows' plane.
pub const HEAD_SET_VIEWPORT_POINT_IN: u32 = 0x48;
/// How many.
pub const HEAD_SET_VIEWPORT_SIZE_IN: u32 = 0x4c;
/// How many they become.
pub const HEAD_SET_VIEWPORT_SIZE_OUT: u32 = 0x58;
/// Whole lines and frames.
pub const HEAD_SET_RASTER_SIZE: u32 = 0x64;
/// Where synchronisation ends.
pub const HEAD_SET_RASTER_SYNC_END: u32 = 0x68;
/// Where blanking ends.
pub const HEAD_SET_RASTER_BLANK_END: u32 = 0x6c;
/// Where blanking begins.
pub const HEAD_SET_RASTER_BLANK_START: u32 = 0x70;
/// Handle of the cursor's memory.
pub const HEAD_SET_CONTEXT_DMA_CURSOR: u32 = 0x88;
/// Where in it, in 256 bytes.
pub const HEAD_SET_OFFSET_CURSOR: u32 = 0x90;
/// The cursor's picture.
pub const HEAD_SET_CONTROL_CURSOR: u32 = 0x9c;
/// How it is laid over the windows.
pub const HEAD_SET_CONTROL_CURSOR_COMPOSITION: u32 = 0xa0;
/// The output's table of colours.
pub const HEAD_SET_OLUT_CONTROL: u32 = 0x280;
/// Handle of its memory.
pub const HEAD_SET_CONTEXT_DMA_OLUT: u32 = 0x288;
/// Where in it, in 256 bytes.
pub const HEAD_SET_OFFSET_OLUT: u32 = 0x28c;

crate::fields! {
    /// [`SET_NOTIFIER_CONTROL`].
    NOTIFIER_CONTROL {
        12:12 NOTIFY,
        /// In 16 bytes.
        11:4 OFFSET,
        0:0 MODE,
    }
    /// [`sor_set_control`].
    SOR_CONTROL { 11:8 PROTOCOL, 7:0 OWNER_MASK }
    /// [`window_set_control`].
    WINDOW_CONTROL { 3:0 OWNER }
    /// [`HEAD_SET_CONTROL_OUTPUT_RESOURCE`].
    CONTROL_OUTPUT_RESOURCE { 7:4 PIXEL_DEPTH = { BPP_24_444: 4 } }
    /// A pair of sizes, or of places: of pixels in a line, and of lines.
    PAIR { 31:16 Y, 15:0 X }
    /// [`HEAD_SET_CONTROL_CURSOR`].
    CONTROL_CURSOR {
        31:31 ENABLE,
        23:16 HOT_SPOT_Y,
        15:10 HOT_SPOT_X,
        9:8 SIZE = { W32_H32: 0, W64_H64: 1, W128_H128: 2, W256_H256: 3 },
        7:0 FORMAT = { R5G6B5: 0xe8, A1R5G5B5: 0xe9, A8R8G8B8: 0xcf },
    }
    /// [`HEAD_SET_CONTROL_CURSOR_COMPOSITION`].
    CONTROL_CURSOR_COMPOSITION {
        16:16 MODE = { BLEND: 0, XOR: 1 },
        15:12 VIEWPORT_COLOR_FACTOR_SELECT = { ZERO: 0, K1: 2, NEG_K1_TIMES_SRC: 7 },
        11:8 CURSOR_COLOR_FACTOR_SELECT = { K1: 2, K1_TIMES_SRC: 5 },
        7:0 K1,
    }
    /// [`HEAD_SET_OLUT_CONTROL`].
    OLUT_CONTROL {
        /// Entries, four more for a header.
        18:8 SIZE,
        3:2 MODE = { SEGMENTED: 0, DIRECT8: 1, DIRECT10: 2 },
        1:1 MIRROR,
        0:0 INTERPOLATE,
    }
}
