//! Blackwell (GB20x).

use super::gh100::HOPPER;
use super::{Display, GspHal, chips};
use crate::abi::values::Multiprocessor;

const BLACKWELL: GspHal = GspHal {
    non_wpr_heap: 0x22_0000,
    display: Some(Display { stall: 0x61, low: 0x62 }),
    multiprocessor: Multiprocessor::of(0xc00),
    ..HOPPER
};

chips! {
    BLACKWELL:
    GB202 = [8; 12];
    GB203 = [6; 7];
    GB205 = [5; 5];
    GB206 = [6; 3];
    GB207 = [5; 2];
}
