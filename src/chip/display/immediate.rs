//! Methods of a window's immediate channel (`NVC37B`, `NVC67B`), as byte offsets.

/// Bytes of its methods.
pub const BYTES: u32 = 0x1000;

/// All that was set takes effect.
pub const UPDATE: u32 = 0x200;
/// Where the window is.
pub const SET_POINT_OUT: u32 = 0x208;

crate::fields! {
    /// [`UPDATE`].
    IMMEDIATE_UPDATE { 1:1 INTERLOCK_WITH_WINDOW, 0:0 RELEASE_ELV }
}
