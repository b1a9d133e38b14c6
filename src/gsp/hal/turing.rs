//! Turing.

use super::gh100::HOPPER;
use super::{GspHal, chips};
use crate::abi::values::Multiprocessor;
use gpuvmk_chip::gmmu::Gmmu;

/// A driver lays out the end of VRAM itself.
pub(super) const TURING: GspHal = GspHal {
    mmu: Gmmu::V2,
    non_wpr_heap: 1 << 20,
    cpu_sequencer: true,
    multiprocessor: Multiprocessor::of(0x705),
    ..HOPPER
};

chips! {
    TURING:
    TU102 = [6; 6];
    TU104 = [4; 6];
    TU106 = [6; 3];
    TU117 = [4; 2];
    TU116 = [4; 3];
}
