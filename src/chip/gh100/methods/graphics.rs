//! The graphics engine's classes: what all of them have, and the methods that draw.

use super::{MethodDef, masked, method, run};

/// Notifier address bits 56:32.
pub const SET_NOTIFY_A: u16 = 0x104;
/// Notifier address bits 31:0.
pub const SET_NOTIFY_B: u16 = 0x108;
/// Writes the notifier; 1 also notifies the driver.
pub const NOTIFY: u16 = 0x10c;

crate::fields! {
    /// Fields of [`SET_NOTIFY_A`](const@SET_NOTIFY_A).
    SET_NOTIFY_A { 24:0 ADDRESS_UPPER }
    /// Fields of [`NOTIFY`](const@NOTIFY).
    NOTIFY { 0:0 AWAKEN }
    /// Interrupts of the graphics engine.
    NV_PGRAPH_INTR {
        /// The data is not allowed.
        20:20 CLASS_ERROR,
        /// There is no such class.
        5:5 ILLEGAL_CLASS,
        /// The class does not have the method, or this GPU cannot do it.
        4:4 ILLEGAL_METHOD
    }
}

/// Common to all classes.
pub(super) const METHODS: &[MethodDef] = &[
    method(0x100, "NO_OPERATION"),
    masked(SET_NOTIFY_A, 0x01ff_ffff, "SET_NOTIFY_A"),
    method(SET_NOTIFY_B, "SET_NOTIFY_B"),
    method(NOTIFY, "NOTIFY"),
    method(0x110, "WAIT_FOR_IDLE"),
    run(0x130, 3, "SET_GLOBAL_RENDER_ENABLE"),
    method(0x13c, "SEND_GO_IDLE"),
    method(0x140, "PM_TRIGGER"),
    method(0x144, "PM_TRIGGER_WFI"),
    method(0x148, "FE_ATOMIC_SEQUENCE_BEGIN"),
    method(0x14c, "FE_ATOMIC_SEQUENCE_END"),
];

/// Methods of the 3D class that draw or clear.
pub const THREED_METHODS: &[MethodDef] = &[
    run(0x268, 2, "DRAW_INDEX_BUFFER_BEGIN_END"),
    run(0x270, 2, "DRAW_VERTEX_ARRAY_BEGIN_END"),
    method(0x304, "DRAW_ZERO_INDEX"),
    method(0xd78, "DRAW_VERTEX_ARRAY"),
    run(0x1214, 2, "DRAW_VERTEX_ARRAY_BEGIN_END_INSTANCE"),
    method(0x123c, "DRAW_AUTO"),
    method(0x1304, "DRAW_INLINE_INDEX4X8"),
    method(0x15e8, "DRAW_INLINE_INDEX"),
    method(0x15f0, "DRAW_INLINE_INDEX2X16"),
    method(0x17e0, "DRAW_INDEX_BUFFER"),
    run(0x17e4, 6, "DRAW_INDEX_BUFFER_BEGIN_END_INSTANCE"),
    method(0x19d0, "CLEAR_SURFACE"),
];

/// Methods of the 2D class that draw or copy.
pub const TWOD_METHODS: &[MethodDef] = &[
    method(0x5e0, "RENDER_SOLID_PRIM_POINT_X_Y"),
    run(0x600, 0x80, "RENDER_SOLID_PRIM_POINT"),
    method(0x860, "PIXELS_FROM_CPU_DATA"),
    method(0x8dc, "PIXELS_FROM_MEMORY_SRC_Y0_INT"),
];
