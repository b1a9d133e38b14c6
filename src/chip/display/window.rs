//! Methods of a window's channel (`NVC57E`, `NVC67E`), as byte offsets.

/// Bytes of its methods.
pub const BYTES: u32 = 0x1000;

/// All that was set takes effect.
pub const UPDATE: u32 = 0x200;
/// Handle of the semaphores' memory.
pub const SET_CONTEXT_DMA_SEMAPHORE: u32 = 0x218;
/// Handle of the memory for notifications.
pub const SET_CONTEXT_DMA_NOTIFIER: u32 = 0x21c;
/// Where in it.
pub const SET_NOTIFIER_CONTROL: u32 = 0x220;
/// Size of the surface.
pub const SET_SIZE: u32 = 0x224;
/// Its layout.
pub const SET_STORAGE: u32 = 0x228;
/// Its format.
pub const SET_PARAMS: u32 = 0x22c;
/// Distance of its lines, in 64 bytes.
pub const SET_PLANAR_STORAGE: u32 = 0x230;
/// Handle of its memory; 0: nothing is shown.
pub const SET_CONTEXT_DMA_ISO: u32 = 0x240;
/// Where in it, in 256 bytes.
pub const SET_OFFSET: u32 = 0x260;
/// The part that is shown: where it begins.
pub const SET_POINT_IN: u32 = 0x290;
/// How large it is.
pub const SET_SIZE_IN: u32 = 0x298;
/// How large it is shown.
pub const SET_SIZE_OUT: u32 = 0x2a4;
/// What lies over what.
pub const SET_COMPOSITION_CONTROL: u32 = 0x2ec;
/// The constant alpha.
pub const SET_COMPOSITION_CONSTANT_ALPHA: u32 = 0x2f0;
/// How much of it, and of what is below.
pub const SET_COMPOSITION_FACTOR_SELECT: u32 = 0x2f4;
/// When it takes effect.
pub const SET_PRESENT_CONTROL: u32 = 0x308;
/// The core and cursors whose updates it waits for.
pub const SET_INTERLOCK_FLAGS: u32 = 0x370;
/// Windows whose updates it waits for, a bit each.
pub const SET_WINDOW_INTERLOCK_FLAGS: u32 = 0x374;
/// The first of twelve coefficients that colours are multiplied by.
pub const SET_FMT_COEFFICIENT: u32 = 0x400;
/// The input's table of colours.
pub const SET_ILUT_CONTROL: u32 = 0x440;
/// Handle of its memory.
pub const SET_CONTEXT_DMA_ILUT: u32 = 0x444;
/// Where in it, in 256 bytes.
pub const SET_OFFSET_ILUT: u32 = 0x448;

crate::fields! {
    /// [`UPDATE`].
    WINDOW_UPDATE { 12:12 INTERLOCK_WITH_WIN_IMM, 0:0 RELEASE_ELV }
    /// [`SET_NOTIFIER_CONTROL`].
    NOTIFIER_CONTROL {
        /// In 16 bytes.
        11:4 OFFSET,
        0:0 MODE,
    }
    /// [`SET_STORAGE`].
    STORAGE {
        /// log2 of the blocks' height in GOBs.
        3:0 BLOCK_HEIGHT
    }
    /// [`SET_PARAMS`].
    PARAMS {
        7:0 FORMAT = {
            I8: 0x1e, R4G4B4A4: 0x2f, R5G6B5: 0xe8, A1R5G5B5: 0xe9, R5G5B5A1: 0x2e,
            A8R8G8B8: 0xcf, X8R8G8B8: 0xe6, A8B8G8R8: 0xd5, X8B8G8R8: 0xf9,
            A2R10G10B10: 0xdf, A2B10G10R10: 0xd1, RF16_GF16_BF16_AF16: 0xca,
            Y8_U8__Y8_V8: 0x28, U8_Y8__V8_Y8: 0x29,
        },
    }
    /// [`SET_PLANAR_STORAGE`].
    PLANAR_STORAGE { 12:0 PITCH }
    /// [`SET_COMPOSITION_CONTROL`].
    COMPOSITION_CONTROL { 16:16 BYPASS, 11:4 DEPTH, 1:0 COLOR_KEY_SELECT }
    /// [`SET_COMPOSITION_CONSTANT_ALPHA`].
    COMPOSITION_CONSTANT_ALPHA { 15:8 K2, 7:0 K1 }
    /// [`SET_COMPOSITION_FACTOR_SELECT`].
    COMPOSITION_FACTOR_SELECT {
        11:8 DST_COLOR_FACTOR_MATCH_SELECT = { ZERO: 0, ONE: 1, K1: 2, K2: 3, NEG_K1: 4, NEG_K1_TIMES_DST: 6, NEG_K1_TIMES_SRC: 7, NEG_K1_TIMES_DST_SRC: 8 },
        3:0 SRC_COLOR_FACTOR_MATCH_SELECT = { ZERO: 0, ONE: 1, K1: 2, K1_TIMES_DST: 3, NEG_K1_TIMES_DST: 4, K1_TIMES_SRC: 5 },
    }
    /// [`SET_PRESENT_CONTROL`].
    PRESENT_CONTROL {
        6:4 BEGIN_MODE = { NON_TEARING: 0, IMMEDIATE: 1 },
        3:0 MIN_PRESENT_INTERVAL,
    }
    /// [`SET_INTERLOCK_FLAGS`].
    INTERLOCK_FLAGS { 8:1 INTERLOCK_WITH_CURSOR, 0:0 INTERLOCK_WITH_CORE }
    /// [`SET_ILUT_CONTROL`].
    ILUT_CONTROL {
        /// Entries, four more for a header.
        18:8 SIZE,
        3:2 MODE = { SEGMENTED: 0, DIRECT8: 1, DIRECT10: 2 },
        1:1 MIRROR,
        0:0 INTERPOLATE,
    }
}
