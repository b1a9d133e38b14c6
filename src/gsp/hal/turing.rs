//! Turing.

use super::gh100::HOPPER;
use super::{GspHal, chips};
use gpuvmk_chip::gmmu::Gmmu;

/// A driver lays out the end of VRAM itself.
pub(super) const TURING: GspHal =
    GspHal { mmu: Gmmu::V2, non_wpr_heap: 1 << 20, cpu_sequencer: true, ..HOPPER };

chips!(TURING: TU102 TU104 TU106 TU117 TU116);
