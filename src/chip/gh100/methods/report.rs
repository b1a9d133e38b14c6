//! Report semaphores of the 3D and compute classes: a value or a counter, with the time, to memory. There are
//! two forms, an old one at 0x1b00 and one at 0x158 with payloads of 64 bits.

use super::{MethodDef, masked, method};
use crate::registers::Field;

/// Old form: address bits 56:32.
pub const SET_REPORT_SEMAPHORE_A: u16 = 0x1b00;
/// Old form: address bits 31:0.
pub const SET_REPORT_SEMAPHORE_B: u16 = 0x1b04;
/// Old form: payload.
pub const SET_REPORT_SEMAPHORE_C: u16 = 0x1b08;
/// Old form: writes the report.
pub const SET_REPORT_SEMAPHORE_D: u16 = 0x1b0c;
/// Payload, low word.
pub const SET_REPORT_SEMAPHORE_PAYLOAD_LOWER: u16 = 0x158;
/// Payload, high word.
pub const SET_REPORT_SEMAPHORE_PAYLOAD_UPPER: u16 = 0x15c;
/// Address bits 31:0.
pub const SET_REPORT_SEMAPHORE_ADDRESS_LOWER: u16 = 0x160;
/// Address bits 56:32.
pub const SET_REPORT_SEMAPHORE_ADDRESS_UPPER: u16 = 0x164;
/// Writes the report.
pub const REPORT_SEMAPHORE_EXECUTE: u16 = 0x168;

crate::fields! {
    /// Fields of the upper words of addresses.
    ADDRESS_UPPER { 24:0 ADDRESS }
    /// Fields that every form has.
    ANY {
        1:0 OPERATION = {
            /// The payload.
            RELEASE: 0,
            /// The counter that REPORT names.
            REPORT_ONLY: 2,
            /// Nothing is written; the driver is interrupted.
            TRAP: 3,
        }
    }
    /// Fields of [`SET_REPORT_SEMAPHORE_D`](const@SET_REPORT_SEMAPHORE_D).
    SET_REPORT_SEMAPHORE_D {
        28:28 STRUCTURE_SIZE, 20:20 AWAKEN_ENABLE, 18:17 REDUCTION_FORMAT, 11:9 REDUCTION_OP, 3:3 REDUCTION_ENABLE
    }
    /// Fields of [`REPORT_SEMAPHORE_EXECUTE`] of the 3D class.
    THREED_EXECUTE {
        27:27 PAYLOAD_SIZE64, 25:24 REDUCTION_FORMAT, 23:21 REDUCTION_OP, 20:20 REDUCTION_ENABLE,
        14:13 STRUCTURE_SIZE, 6:6 AWAKEN_ENABLE
    }
    /// Fields of [`REPORT_SEMAPHORE_EXECUTE`] of the compute class.
    COMPUTE_EXECUTE {
        12:12 PAYLOAD_SIZE64, 11:10 REDUCTION_FORMAT, 9:7 REDUCTION_OP, 6:6 REDUCTION_ENABLE,
        4:3 STRUCTURE_SIZE = { ONE_WORD: 1 }, 2:2 AWAKEN_ENABLE
    }
}

/// Where the fields of a form are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Notifies the driver.
    pub awaken: Field,
    /// 0 is four words with the time, 1 one word, 2 two words.
    pub structure_size: Field,
    /// Carries out a reduction instead of writing.
    pub reduction: Field,
    /// Which reduction is carried out.
    pub reduction_op: Field,
    /// Bit 0: signed.
    pub reduction_format: Field,
    /// The payload has 64 bits; the old form never has that.
    pub payload_64bit: Option<Field>,
}

/// SET_REPORT_SEMAPHORE_D.
pub const OLD: Form = Form {
    awaken: SET_REPORT_SEMAPHORE_D::AWAKEN_ENABLE,
    structure_size: SET_REPORT_SEMAPHORE_D::STRUCTURE_SIZE,
    reduction: SET_REPORT_SEMAPHORE_D::REDUCTION_ENABLE,
    reduction_op: SET_REPORT_SEMAPHORE_D::REDUCTION_OP,
    reduction_format: SET_REPORT_SEMAPHORE_D::REDUCTION_FORMAT,
    payload_64bit: None,
};

/// REPORT_SEMAPHORE_EXECUTE of the 3D class.
pub const THREED: Form = Form {
    awaken: THREED_EXECUTE::AWAKEN_ENABLE,
    structure_size: THREED_EXECUTE::STRUCTURE_SIZE,
    reduction: THREED_EXECUTE::REDUCTION_ENABLE,
    reduction_op: THREED_EXECUTE::REDUCTION_OP,
    reduction_format: THREED_EXECUTE::REDUCTION_FORMAT,
    payload_64bit: Some(THREED_EXECUTE::PAYLOAD_SIZE64),
};

/// REPORT_SEMAPHORE_EXECUTE of the compute class.
pub const COMPUTE: Form = Form {
    awaken: COMPUTE_EXECUTE::AWAKEN_ENABLE,
    structure_size: COMPUTE_EXECUTE::STRUCTURE_SIZE,
    reduction: COMPUTE_EXECUTE::REDUCTION_ENABLE,
    reduction_op: COMPUTE_EXECUTE::REDUCTION_OP,
    reduction_format: COMPUTE_EXECUTE::REDUCTION_FORMAT,
    payload_64bit: Some(COMPUTE_EXECUTE::PAYLOAD_SIZE64),
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
