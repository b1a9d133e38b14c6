//! Methods of a cursor's channel (`NVC37A`, `NVC67A`), which are registers: it has no push buffer.

/// What was set takes effect.
pub const UPDATE: u32 = 0x200;
/// Where the cursor's hot spot is.
pub const SET_CURSOR_HOT_SPOT_POINT_OUT: u32 = 0x208;
