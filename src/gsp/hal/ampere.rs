//! Ampere (GA10x).

use super::turing::TURING;
use super::{GspHal, chips};
use gpuvmk_chip::gmmu::Gmmu;

/// Page tables have pages of 512 MiB.
pub(super) const AMPERE: GspHal = GspHal { mmu: Gmmu::V2Ampere, ..TURING };

chips!(AMPERE: GA102 GA103 GA104 GA106 GA107);
