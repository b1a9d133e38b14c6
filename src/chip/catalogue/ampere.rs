//! Ampere.

use super::gsp_row::row;
use super::{ChipClasses, ChipRow, Family};
use crate::gsp;
use crate::nv::classes::{
    AMPERE_B, AMPERE_CHANNEL_GPFIFO_A, AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B, AMPERE_USERMODE_A, FERMI_TWOD_A,
    KEPLER_INLINE_TO_MEMORY_B,
};

const AMPERE: ChipClasses = ChipClasses {
    channel: AMPERE_CHANNEL_GPFIFO_A,
    copy: &[AMPERE_DMA_COPY_B],
    three_d: AMPERE_B,
    compute: AMPERE_COMPUTE_B,
    two_d: FERMI_TWOD_A,
    to_memory: KEPLER_INLINE_TO_MEMORY_B,
    usermode: Some(AMPERE_USERMODE_A),
    display: None,
    heads: None,
};

pub(super) static GA102: ChipRow = row(&gsp::GA102, Family::Ampere, AMPERE);
pub(super) static GA103: ChipRow = row(&gsp::GA103, Family::Ampere, AMPERE);
pub(super) static GA104: ChipRow = row(&gsp::GA104, Family::Ampere, AMPERE);
pub(super) static GA106: ChipRow = row(&gsp::GA106, Family::Ampere, AMPERE);
pub(super) static GA107: ChipRow = row(&gsp::GA107, Family::Ampere, AMPERE);
