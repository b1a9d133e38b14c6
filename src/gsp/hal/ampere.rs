//! Ampere (GA10x).

use super::turing::TURING;
use super::{GspHal, chips};
use crate::abi::values::Multiprocessor;
use gpuvmk_chip::gmmu::Gmmu;

/// Page tables have pages of 512 MiB.
pub(super) const AMPERE: GspHal =
    GspHal { mmu: Gmmu::V2Ampere, multiprocessor: Multiprocessor::of(0x806), ..TURING };

chips! {
    AMPERE:
    GA102 = [6; 7];
    GA103 = [5; 6];
    GA104 = [4; 6];
    GA106 = [5; 3];
    GA107 = [5; 2];
}
