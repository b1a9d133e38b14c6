//! Blackwell (GB20x).

use super::gh100::HOPPER;
use super::{GspHal, chips};
use crate::abi::values::Multiprocessor;

const BLACKWELL: GspHal = GspHal {
    non_wpr_heap: 0x22_0000,
    display: Some(HOPPER.display_vectors),
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
