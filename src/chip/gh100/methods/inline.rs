//! Inline to memory: lines of data from the command stream. Class a140 is that alone; the 3D and compute
//! classes have the same methods at the same addresses.

use super::{MethodDef, masked, method, run};

/// The first method that belongs to inline to memory.
pub const FIRST: u16 = 0x180;
/// Number of bytes of a line that are written.
pub const LINE_LENGTH_IN: u16 = 0x180;
/// Number of lines that are written.
pub const LINE_COUNT: u16 = 0x184;
/// Target address bits 56:32.
pub const OFFSET_OUT_UPPER: u16 = 0x188;
/// Bytes from a line to the next, signed.
pub const PITCH_OUT: u16 = 0x190;
/// Block shape. Width, height, depth and layer follow.
pub const SET_DST_BLOCK_SIZE: u16 = 0x194;
/// Bytes of a line of the surface.
pub const SET_DST_WIDTH: u16 = 0x198;
/// Lines of the surface.
pub const SET_DST_HEIGHT: u16 = 0x19c;
/// Slice of the surface that is written.
pub const SET_DST_LAYER: u16 = 0x1a4;
/// First byte of a line that is written.
pub const SET_DST_ORIGIN_BYTES_X: u16 = 0x1a8;
/// First line that is written.
pub const SET_DST_ORIGIN_SAMPLES_Y: u16 = 0x1ac;
/// Starts the transfer. Its data follows by LOAD_INLINE_DATA.
pub const LAUNCH_DMA: u16 = 0x1b0;
/// Data of the transfer.
pub const LOAD_INLINE_DATA: u16 = 0x1b4;
/// Semaphore address bits 56:32.
pub const SET_I2M_SEMAPHORE_A: u16 = 0x1dc;
/// What a release writes.
pub const SET_I2M_SEMAPHORE_C: u16 = 0x1e4;
/// The last method that belongs to inline to memory.
pub const LAST: u16 = 0x1fc;

crate::fields! {
    /// Fields of [`SET_DST_BLOCK_SIZE`](const@SET_DST_BLOCK_SIZE): log2 of GOBs, as far as this GPU goes.
    SET_DST_BLOCK_SIZE { 10:8 DEPTH, 6:4 HEIGHT }
    /// Fields of [`LAUNCH_DMA`](const@LAUNCH_DMA).
    LAUNCH_DMA {
        /// In the numbering of [`super::super::report`].
        15:13 REDUCTION_OP,
        /// The semaphore is one word; clear: four words, with the time.
        12:12 SEMAPHORE_STRUCT_SIZE,
        9:8 INTERRUPT_TYPE,
        5:4 COMPLETION_TYPE = {
            FLUSH_DISABLE: 0,
            FLUSH_ONLY: 1,
            /// The semaphore is written.
            RELEASE_SEMAPHORE: 2,
        },
        3:2 REDUCTION_FORMAT = { SIGNED_32: 1 },
        1:1 REDUCTION_ENABLE,
        /// The surface has a pitch; clear: blocks.
        0:0 DST_MEMORY_LAYOUT
    }
}

pub(super) const METHODS: &[MethodDef] = &[
    method(LINE_LENGTH_IN, "LINE_LENGTH_IN"),
    method(LINE_COUNT, "LINE_COUNT"),
    masked(OFFSET_OUT_UPPER, 0x01ff_ffff, "OFFSET_OUT_UPPER"),
    method(0x18c, "OFFSET_OUT"),
    method(PITCH_OUT, "PITCH_OUT"),
    masked(SET_DST_BLOCK_SIZE, 0xfff, "SET_DST_BLOCK_SIZE"),
    method(SET_DST_WIDTH, "SET_DST_WIDTH"),
    method(SET_DST_HEIGHT, "SET_DST_HEIGHT"),
    method(0x1a0, "SET_DST_DEPTH"),
    method(SET_DST_LAYER, "SET_DST_LAYER"),
    masked(SET_DST_ORIGIN_BYTES_X, 0x001f_ffff, "SET_DST_ORIGIN_BYTES_X"),
    masked(SET_DST_ORIGIN_SAMPLES_Y, 0x0001_ffff, "SET_DST_ORIGIN_SAMPLES_Y"),
    method(LAUNCH_DMA, "LAUNCH_DMA"),
    method(LOAD_INLINE_DATA, "LOAD_INLINE_DATA"),
    masked(SET_I2M_SEMAPHORE_A, 0x01ff_ffff, "SET_I2M_SEMAPHORE_A"),
    method(0x1e0, "SET_I2M_SEMAPHORE_B"),
    method(SET_I2M_SEMAPHORE_C, "SET_I2M_SEMAPHORE_C"),
    run(0x1f0, 4, "SET_I2M_SPARE_NOOP"),
];
