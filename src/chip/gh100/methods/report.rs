//! Report semaphores of the 3D and compute classes: a value or a counter, with the time, to memory. There are
//! two forms, an old one at 0x1b00 and one at 0x158 with payloads of 64 bits.

use super::{MethodDef, masked, method};

/// Old form: address bits 56:32.
pub const SET_REPORT_SEMAPHORE_A: u16 = 0x1b00;
/// Old form: address bits 31:0.
pub const SET_REPORT_SEMAPHORE_B: u16 = 0x1b04;
/// Old form: payload.
pub const SET_REPORT_SEMAPHORE_C: u16 = 0x1b08;
/// Old form: writes.
pub const SET_REPORT_SEMAPHORE_D: u16 = 0x1b0c;
/// Payload, low word.
pub const SET_REPORT_SEMAPHORE_PAYLOAD_LOWER: u16 = 0x158;
/// Payload, high word.
pub const SET_REPORT_SEMAPHORE_PAYLOAD_UPPER: u16 = 0x15c;
/// Address bits 31:0.
pub const SET_REPORT_SEMAPHORE_ADDRESS_LOWER: u16 = 0x160;
/// Address bits 56:32.
pub const SET_REPORT_SEMAPHORE_ADDRESS_UPPER: u16 = 0x164;
/// Writes.
pub const REPORT_SEMAPHORE_EXECUTE: u16 = 0x168;

/// OPERATION, bits 1:0 in every form.
pub const OPERATION: u32 = 3;
/// OPERATION: the payload.
pub const RELEASE: u32 = 0;
/// OPERATION: the counter that REPORT names.
pub const REPORT_ONLY: u32 = 2;

/// Where the fields of a form are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// AWAKEN_ENABLE: notifies the driver.
    pub awaken: u32,
    /// STRUCTURE_SIZE: where it is, two bits, or one in the old form.
    pub size_shift: u32,
    /// Bits of STRUCTURE_SIZE: 0 is four words with the time, 1 one word, 2 two words.
    pub size_mask: u32,
    /// REDUCTION_ENABLE.
    pub reduction: u32,
    /// REDUCTION_OP, three bits.
    pub reduction_shift: u32,
    /// REDUCTION_FORMAT: signed.
    pub reduction_signed: u32,
    /// PAYLOAD_SIZE64.
    pub payload_64bit: u32,
}

/// SET_REPORT_SEMAPHORE_D.
pub const OLD: Form = Form {
    awaken: 1 << 20,
    size_shift: 28,
    size_mask: 1,
    reduction: 1 << 3,
    reduction_shift: 9,
    reduction_signed: 1 << 17,
    payload_64bit: 0,
};

/// REPORT_SEMAPHORE_EXECUTE of the 3D class.
pub const THREED: Form = Form {
    awaken: 1 << 6,
    size_shift: 13,
    size_mask: 3,
    reduction: 1 << 20,
    reduction_shift: 21,
    reduction_signed: 1 << 24,
    payload_64bit: 1 << 27,
};

/// REPORT_SEMAPHORE_EXECUTE of the compute class.
pub const COMPUTE: Form = Form {
    awaken: 1 << 2,
    size_shift: 3,
    size_mask: 3,
    reduction: 1 << 6,
    reduction_shift: 7,
    reduction_signed: 1 << 10,
    payload_64bit: 1 << 12,
};

pub(super) const METHODS: &[MethodDef] = &[
    method(SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, "SET_REPORT_SEMAPHORE_PAYLOAD_LOWER"),
    method(SET_REPORT_SEMAPHORE_PAYLOAD_UPPER, "SET_REPORT_SEMAPHORE_PAYLOAD_UPPER"),
    method(SET_REPORT_SEMAPHORE_ADDRESS_LOWER, "SET_REPORT_SEMAPHORE_ADDRESS_LOWER"),
    masked(SET_REPORT_SEMAPHORE_ADDRESS_UPPER, 0x01ff_ffff, "SET_REPORT_SEMAPHORE_ADDRESS_UPPER"),
    method(REPORT_SEMAPHORE_EXECUTE, "REPORT_SEMAPHORE_EXECUTE"),
    masked(SET_REPORT_SEMAPHORE_A, 0x01ff_ffff, "SET_REPORT_SEMAPHORE_A"),
    method(SET_REPORT_SEMAPHORE_B, "SET_REPORT_SEMAPHORE_B"),
    method(SET_REPORT_SEMAPHORE_C, "SET_REPORT_SEMAPHORE_C"),
    method(SET_REPORT_SEMAPHORE_D, "SET_REPORT_SEMAPHORE_D"),
];
