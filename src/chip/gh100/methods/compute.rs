//! The compute class: what launches grids, and the state that launches use. The classes from Turing to
//! Blackwell have the same numbers here. Source: `clc5c0.h` to `clcec0.h`.

use super::{MethodDef, masked, method, run};

/// Drops what the SMs remember of memory.
pub const INVALIDATE_SHADER_CACHES: u16 = 0x21c;
/// The same, without waiting for what runs.
pub const INVALIDATE_SHADER_CACHES_NO_WFI: u16 = 0x1698;
/// Where in the generic address space a block sees its shared memory: address bits 48:32.
pub const SET_SHADER_SHARED_MEMORY_WINDOW_A: u16 = 0x2a0;
/// Address bits 31:0.
pub const SET_SHADER_SHARED_MEMORY_WINDOW_B: u16 = 0x2a4;
/// Names a QMD by bits 39:8 of its address.
pub const SEND_PCAS_A: u16 = 0x2b4;
/// Acts on the QMD that [`SEND_PCAS_A`] names.
pub const SEND_SIGNALING_PCAS_B: u16 = 0x2bc;
/// The same, by an action.
pub const SEND_SIGNALING_PCAS2_B: u16 = 0x2c0;
/// Bytes of local memory of a TPC, bits 39:32.
pub const SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A: u16 = 0x2e4;
/// Bits 31:0.
pub const SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B: u16 = 0x2e8;
/// Number of SMs that local memory is for.
pub const SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C: u16 = 0x2ec;
/// Names a QMD whose words follow in the command stream: bits 48:40 of its address, and its size.
pub const SET_INLINE_QMD_ADDRESS_A: u16 = 0x318;
/// Address bits 39:8.
pub const SET_INLINE_QMD_ADDRESS_B: u16 = 0x31c;
/// The first of the words of that QMD. The last one launches it.
pub const LOAD_INLINE_QMD_DATA: u16 = 0x320;
/// Address of local memory, bits 56:32.
pub const SET_SHADER_LOCAL_MEMORY_A: u16 = 0x790;
/// Address bits 31:0.
pub const SET_SHADER_LOCAL_MEMORY_B: u16 = 0x794;
/// Where in the generic address space a thread sees its local memory: address bits 48:32.
pub const SET_SHADER_LOCAL_MEMORY_WINDOW_A: u16 = 0x7b0;
/// Address bits 31:0.
pub const SET_SHADER_LOCAL_MEMORY_WINDOW_B: u16 = 0x7b4;

crate::fields! {
    /// Fields of [`INVALIDATE_SHADER_CACHES`](const@INVALIDATE_SHADER_CACHES).
    INVALIDATE_SHADER_CACHES { 12:12 CONSTANT, 4:4 DATA, 0:0 INSTRUCTION }
    /// Fields of the upper words of windows.
    WINDOW_UPPER { 16:0 BASE_ADDRESS }
    /// Fields of the upper words of addresses.
    ADDRESS_UPPER { 24:0 ADDRESS }
    /// Fields of [`SEND_SIGNALING_PCAS_B`](const@SEND_SIGNALING_PCAS_B).
    SEND_SIGNALING_PCAS_B { 1:1 SCHEDULE, 0:0 INVALIDATE }
    /// Fields of [`SEND_SIGNALING_PCAS2_B`](const@SEND_SIGNALING_PCAS2_B).
    SEND_SIGNALING_PCAS2_B {
        3:0 PCAS_ACTION = {
            NOP: 0,
            INVALIDATE: 1,
            SCHEDULE: 2,
            INVALIDATE_COPY_SCHEDULE: 3,
            /// An entry more in the QMD's queue.
            INCREMENT_PUT: 6,
            /// Launches the QMD once its counter is 0.
            DECREMENT_DEPENDENCE: 7,
            PREFETCH: 8,
            PREFETCH_SCHEDULE: 9,
            INVALIDATE_PREFETCH_COPY_SCHEDULE: 10,
            INVALIDATE_PREFETCH_COPY_FORCE_REQUIRE_SCHEDULING: 11,
            INCREMENT_DEPENDENCE: 12,
            INCREMENT_CWD_REF_COUNTER: 13,
        }
    }
    /// Fields of [`SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A`](const@SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A).
    SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A { 7:0 SIZE_UPPER }
    /// Fields of [`SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C`](const@SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C).
    SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C { 8:0 MAX_SM_COUNT }
    /// Fields of [`SET_INLINE_QMD_ADDRESS_A`](const@SET_INLINE_QMD_ADDRESS_A).
    SET_INLINE_QMD_ADDRESS_A {
        30:30 INLINE_SIZE = {
            /// 256 bytes.
            BYTES_256: 0,
            /// 384 bytes.
            BYTES_384: 1,
        },
        8:0 QMD_ADDRESS_SHIFTED8_UPPER
    }
}

/// Methods of the compute class alone.
pub(super) const METHODS: &[MethodDef] = &[
    method(INVALIDATE_SHADER_CACHES, "INVALIDATE_SHADER_CACHES"),
    method(0x298, "INVALIDATE_SKED_CACHES"),
    masked(SET_SHADER_SHARED_MEMORY_WINDOW_A, 0x1_ffff, "SET_SHADER_SHARED_MEMORY_WINDOW_A"),
    method(SET_SHADER_SHARED_MEMORY_WINDOW_B, "SET_SHADER_SHARED_MEMORY_WINDOW_B"),
    method(SEND_PCAS_A, "SEND_PCAS_A"),
    method(0x2b8, "SEND_PCAS_B"),
    masked(SEND_SIGNALING_PCAS_B, 3, "SEND_SIGNALING_PCAS_B"),
    method(SEND_SIGNALING_PCAS2_B, "SEND_SIGNALING_PCAS2_B"),
    masked(SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 0xff, "SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A"),
    method(SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B, "SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B"),
    method(SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C, "SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C"),
    method(SET_INLINE_QMD_ADDRESS_A, "SET_INLINE_QMD_ADDRESS_A"),
    method(SET_INLINE_QMD_ADDRESS_B, "SET_INLINE_QMD_ADDRESS_B"),
    run(LOAD_INLINE_QMD_DATA, 96, "LOAD_INLINE_QMD_DATA"),
    masked(SET_SHADER_LOCAL_MEMORY_A, 0x01ff_ffff, "SET_SHADER_LOCAL_MEMORY_A"),
    method(SET_SHADER_LOCAL_MEMORY_B, "SET_SHADER_LOCAL_MEMORY_B"),
    masked(SET_SHADER_LOCAL_MEMORY_WINDOW_A, 0x1_ffff, "SET_SHADER_LOCAL_MEMORY_WINDOW_A"),
    method(SET_SHADER_LOCAL_MEMORY_WINDOW_B, "SET_SHADER_LOCAL_MEMORY_WINDOW_B"),
    method(INVALIDATE_SHADER_CACHES_NO_WFI, "INVALIDATE_SHADER_CACHES_NO_WFI"),
];
