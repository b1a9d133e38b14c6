//! What closed libraries send, and no public header names.

use crate::abi::table::{Answer, controls};

const UNNAMED_2080_8159: u32 = 0x2080_8159;
const UNNAMED_2080_9038: u32 = 0x2080_9038;
const UNNAMED_2081_0108: u32 = 0x2081_0108;

controls! {
    source "recordings of libcuda and nvidia-smi 535.261.03 and 550.163.01";
    /// Values by number, which stay 0.
    UNNAMED_2080_8159 on Subdevice, 332 => Answer::Acknowledged;
    /// A number.
    UNNAMED_2080_9038 on Subdevice, 4 => Answer::Zeroes;
    /// A table.
    UNNAMED_2081_0108 on BinaryApi, 992 => Answer::Zeroes;
}
