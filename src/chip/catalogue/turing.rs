//! Turing.

use super::gsp_row::row;
use super::{ChipClasses, ChipRow, Family};
use crate::gsp;
use crate::nv::classes::{
    FERMI_TWOD_A, KEPLER_INLINE_TO_MEMORY_B, TURING_A, TURING_CHANNEL_GPFIFO_A, TURING_COMPUTE_A,
    TURING_DMA_COPY_A, TURING_USERMODE_A,
};

const TURING: ChipClasses = ChipClasses {
    channel: TURING_CHANNEL_GPFIFO_A,
    copy: &[TURING_DMA_COPY_A],
    three_d: TURING_A,
    compute: TURING_COMPUTE_A,
    two_d: FERMI_TWOD_A,
    to_memory: KEPLER_INLINE_TO_MEMORY_B,
    usermode: Some(TURING_USERMODE_A),
    display: None,
    heads: None,
};

pub(super) static TU102: ChipRow = row(&gsp::TU102, Family::Turing, TURING);
pub(super) static TU104: ChipRow = row(&gsp::TU104, Family::Turing, TURING);
pub(super) static TU106: ChipRow = row(&gsp::TU106, Family::Turing, TURING);
pub(super) static TU117: ChipRow = row(&gsp::TU117, Family::Turing, TURING);
pub(super) static TU116: ChipRow = row(&gsp::TU116, Family::Turing, TURING);
