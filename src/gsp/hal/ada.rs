//! Ada.

use super::ampere::AMPERE;
use super::{GspHal, chips};
use crate::abi::values::Multiprocessor;

const ADA: GspHal = GspHal { multiprocessor: Multiprocessor::of(0x809), ..AMPERE };

chips! {
    ADA:
    AD102 = [6; 12];
    AD103 = [6, 6, 6, 6, 6, 6, 4];
    AD104 = [6; 5];
    AD106 = [6; 3];
    AD107 = [4; 3];
}
