//! Class c8b5, HOPPER_DMA_COPY_A: copies and fills of lines between pitch and block-linear surfaces.

use super::{MethodDef, masked, method};

/// Does nothing.
pub const NOP: u16 = 0x100;
/// Does nothing that shows.
pub const PM_TRIGGER: u16 = 0x140;
/// Semaphore address bits 56:32.
pub const SET_SEMAPHORE_A: u16 = 0x240;
/// Semaphore address bits 31:0.
pub const SET_SEMAPHORE_B: u16 = 0x244;
/// What a release writes, low word.
pub const SET_SEMAPHORE_PAYLOAD: u16 = 0x248;
/// High word of the same.
pub const SET_SEMAPHORE_PAYLOAD_UPPER: u16 = 0x24c;
/// Which memory a physical source address is in.
pub const SET_SRC_PHYS_MODE: u16 = 0x260;
/// Which memory a physical target address is in.
pub const SET_DST_PHYS_MODE: u16 = 0x264;
/// Whether launches do anything.
pub const SET_RENDER_ENABLE_C: u16 = 0x25c;
/// Starts.
pub const LAUNCH_DMA: u16 = 0x300;
/// Source address bits 56:32.
pub const OFFSET_IN_UPPER: u16 = 0x400;
/// Source address bits 31:0.
pub const OFFSET_IN_LOWER: u16 = 0x404;
/// Target address bits 56:32.
pub const OFFSET_OUT_UPPER: u16 = 0x408;
/// Target address bits 31:0.
pub const OFFSET_OUT_LOWER: u16 = 0x40c;
/// Bytes from a source line to the next, signed.
pub const PITCH_IN: u16 = 0x410;
/// Bytes from a target line to the next, signed.
pub const PITCH_OUT: u16 = 0x414;
/// Bytes of a line; elements when components are remapped.
pub const LINE_LENGTH_IN: u16 = 0x418;
/// Number of lines.
pub const LINE_COUNT: u16 = 0x41c;
/// Constant that a component can be set to.
pub const SET_REMAP_CONST_A: u16 = 0x700;
/// The other one.
pub const SET_REMAP_CONST_B: u16 = 0x704;
/// Where each component of the target comes from, and how large and how many they are.
pub const SET_REMAP_COMPONENTS: u16 = 0x708;
/// Block shape of the target. Width, height, depth, layer and packed origin follow.
pub const SET_DST_BLOCK_SIZE: u16 = 0x70c;
/// First target element and line.
pub const SET_DST_ORIGIN: u16 = 0x720;
/// The same of the source.
pub const SET_SRC_BLOCK_SIZE: u16 = 0x728;
/// First source element and line.
pub const SET_SRC_ORIGIN: u16 = 0x73c;
/// First source element.
pub const SRC_ORIGIN_X: u16 = 0x744;
/// First source line.
pub const SRC_ORIGIN_Y: u16 = 0x748;
/// First target element.
pub const DST_ORIGIN_X: u16 = 0x74c;
/// First target line.
pub const DST_ORIGIN_Y: u16 = 0x750;

/// From a block-size method to the others of the same surface.
pub mod surface {
    /// Bytes or elements of a line.
    pub const WIDTH: u16 = 4;
    /// Number of lines.
    pub const HEIGHT: u16 = 8;
    /// Slice.
    pub const LAYER: u16 = 16;
}

crate::fields! {
    /// Fields of [`SET_SRC_PHYS_MODE`](const@SET_SRC_PHYS_MODE) and
    /// [`SET_DST_PHYS_MODE`](const@SET_DST_PHYS_MODE).
    SET_SRC_PHYS_MODE {
        1:0 TARGET = {
            LOCAL_FB: 0,
            COHERENT_SYSMEM: 1,
            NONCOHERENT_SYSMEM: 2,
            PEERMEM: 3,
        }
    }
    /// Fields of [`SET_RENDER_ENABLE_C`](const@SET_RENDER_ENABLE_C).
    SET_RENDER_ENABLE_C {
        2:0 MODE = {
            /// Launches do nothing.
            FALSE: 0,
            /// Launches copy.
            TRUE: 1,
        }
    }
    /// Fields of [`LAUNCH_DMA`](const@LAUNCH_DMA).
    LAUNCH_DMA {
        /// 64 bits; clear: 32.
        27:27 SEMAPHORE_PAYLOAD_SIZE,
        23:23 MEMORY_SCRUB_ENABLE, 22:22 VPRMODE,
        /// Anything but 0 is more than a plain copy.
        21:20 COPY_TYPE,
        19:19 SEMAPHORE_REDUCTION_ENABLE,
        /// Unsigned; clear: signed.
        18:18 SEMAPHORE_REDUCTION_SIGN,
        17:14 SEMAPHORE_REDUCTION = {
            IMIN: 0,
            IMAX: 1,
            IXOR: 2,
            IAND: 3,
            IOR: 4,
            IADD: 5,
            /// By one, up to the payload, and then 0.
            INC: 6,
            /// By one; the payload after 0, and after what is above the payload.
            DEC: 7,
        },
        /// The target address is a physical one.
        13:13 DST_TYPE,
        /// The source address is a physical one.
        12:12 SRC_TYPE,
        10:10 REMAP_ENABLE,
        /// LINE_COUNT counts; clear: one line.
        9:9 MULTI_LINE_ENABLE,
        /// Pitch; clear: blocks.
        8:8 DST_MEMORY_LAYOUT,
        /// Pitch; clear: blocks.
        7:7 SRC_MEMORY_LAYOUT,
        6:5 INTERRUPT_TYPE = {
            NONE: 0,
            BLOCKING: 1,
            NON_BLOCKING: 2,
        },
        4:3 SEMAPHORE_TYPE = {
            /// The payload alone.
            RELEASE_ONE_WORD_SEMAPHORE: 1,
            /// The payload, and the time in the upper half of 16 bytes.
            RELEASE_FOUR_WORD_SEMAPHORE: 2,
        },
        /// Makes the result visible in memory.
        2:2 FLUSH_ENABLE,
        1:0 DATA_TRANSFER_TYPE = {
            NONE: 0,
            PIPELINED: 1,
            /// After everything before it.
            NON_PIPELINED: 2,
        }
    }
    /// Fields of [`SET_REMAP_COMPONENTS`](const@SET_REMAP_COMPONENTS).
    SET_REMAP_COMPONENTS {
        /// Minus 1.
        25:24 NUM_DST_COMPONENTS,
        /// Minus 1.
        21:20 NUM_SRC_COMPONENTS,
        /// Bytes minus 1.
        17:16 COMPONENT_SIZE,
        14:12 DST_W, 10:8 DST_Z, 6:4 DST_Y,
        /// 0 to 3 are source components; the same holds for the other three.
        2:0 DST_X = {
            SRC_W: 3,
            CONST_A: 4,
            CONST_B: 5,
            /// The component stays as it is.
            NO_WRITE: 6,
        }
    }
    /// Fields of [`SET_DST_BLOCK_SIZE`](const@SET_DST_BLOCK_SIZE) and [`SET_SRC_BLOCK_SIZE`]: log2 of GOBs.
    SET_DST_BLOCK_SIZE { 15:12 GOB_HEIGHT, 11:8 DEPTH, 7:4 HEIGHT, 3:0 WIDTH }
    /// Fields of [`SET_DST_ORIGIN`](const@SET_DST_ORIGIN) and [`SET_SRC_ORIGIN`].
    SET_DST_ORIGIN { 31:16 Y, 15:0 X }
}

/// All methods. Those from [`FIRST_STATE`] on, but for [`LAUNCH_DMA`](const@LAUNCH_DMA), are stored.
pub const METHODS: &[MethodDef] = &[
    method(NOP, "NOP"),
    method(PM_TRIGGER, "PM_TRIGGER"),
    masked(0x21c, 1, "SET_MONITORED_FENCE_TYPE"),
    masked(0x220, 0x01ff_ffff, "SET_MONITORED_FENCE_SIGNAL_ADDR_BASE_UPPER"),
    method(0x224, "SET_MONITORED_FENCE_SIGNAL_ADDR_BASE_LOWER"),
    masked(SET_SEMAPHORE_A, 0x01ff_ffff, "SET_SEMAPHORE_A"),
    method(SET_SEMAPHORE_B, "SET_SEMAPHORE_B"),
    method(SET_SEMAPHORE_PAYLOAD, "SET_SEMAPHORE_PAYLOAD"),
    method(SET_SEMAPHORE_PAYLOAD_UPPER, "SET_SEMAPHORE_PAYLOAD_UPPER"),
    masked(0x254, 0x01ff_ffff, "SET_RENDER_ENABLE_A"),
    method(0x258, "SET_RENDER_ENABLE_B"),
    masked(SET_RENDER_ENABLE_C, 7, "SET_RENDER_ENABLE_C"),
    masked(SET_SRC_PHYS_MODE, 0x3ff, "SET_SRC_PHYS_MODE"),
    masked(SET_DST_PHYS_MODE, 0x3ff, "SET_DST_PHYS_MODE"),
    masked(LAUNCH_DMA, 0x0fff_ffff, "LAUNCH_DMA"),
    masked(OFFSET_IN_UPPER, 0x01ff_ffff, "OFFSET_IN_UPPER"),
    method(OFFSET_IN_LOWER, "OFFSET_IN_LOWER"),
    masked(OFFSET_OUT_UPPER, 0x01ff_ffff, "OFFSET_OUT_UPPER"),
    method(OFFSET_OUT_LOWER, "OFFSET_OUT_LOWER"),
    method(PITCH_IN, "PITCH_IN"),
    method(PITCH_OUT, "PITCH_OUT"),
    method(LINE_LENGTH_IN, "LINE_LENGTH_IN"),
    method(LINE_COUNT, "LINE_COUNT"),
    masked(0x500, 1, "SET_SECURE_COPY_MODE"),
    masked(0x514, 0x01ff_ffff, "SET_DECRYPT_AUTH_TAG_COMPARE_ADDR_UPPER"),
    method(0x518, "SET_DECRYPT_AUTH_TAG_COMPARE_ADDR_LOWER"),
    masked(0x530, 0x01ff_ffff, "SET_ENCRYPT_AUTH_TAG_ADDR_UPPER"),
    method(0x534, "SET_ENCRYPT_AUTH_TAG_ADDR_LOWER"),
    masked(0x538, 0x01ff_ffff, "SET_ENCRYPT_IV_ADDR_UPPER"),
    method(0x53c, "SET_ENCRYPT_IV_ADDR_LOWER"),
    masked(0x6fc, 1, "SET_MEMORY_SCRUB_PARAMETERS"),
    method(SET_REMAP_CONST_A, "SET_REMAP_CONST_A"),
    method(SET_REMAP_CONST_B, "SET_REMAP_CONST_B"),
    masked(SET_REMAP_COMPONENTS, 0x0333_7777, "SET_REMAP_COMPONENTS"),
    masked(SET_DST_BLOCK_SIZE, 0xffff, "SET_DST_BLOCK_SIZE"),
    method(0x710, "SET_DST_WIDTH"),
    method(0x714, "SET_DST_HEIGHT"),
    method(0x718, "SET_DST_DEPTH"),
    method(0x71c, "SET_DST_LAYER"),
    method(SET_DST_ORIGIN, "SET_DST_ORIGIN"),
    masked(SET_SRC_BLOCK_SIZE, 0xffff, "SET_SRC_BLOCK_SIZE"),
    method(0x72c, "SET_SRC_WIDTH"),
    method(0x730, "SET_SRC_HEIGHT"),
    method(0x734, "SET_SRC_DEPTH"),
    method(0x738, "SET_SRC_LAYER"),
    method(SET_SRC_ORIGIN, "SET_SRC_ORIGIN"),
    method(SRC_ORIGIN_X, "SRC_ORIGIN_X"),
    method(SRC_ORIGIN_Y, "SRC_ORIGIN_Y"),
    method(DST_ORIGIN_X, "DST_ORIGIN_X"),
    method(DST_ORIGIN_Y, "DST_ORIGIN_Y"),
    method(0x1114, "PM_TRIGGER_END"),
];

/// First method that is stored.
pub const FIRST_STATE: u16 = 0x21c;
/// Last method that is stored.
pub const LAST_STATE: u16 = DST_ORIGIN_Y;
