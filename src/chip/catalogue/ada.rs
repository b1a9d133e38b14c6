//! Ada.

use super::gsp_row::row;
use super::{ChipClasses, ChipRow, Family};
use crate::gsp;
use crate::nv::classes::{
    ADA_A, ADA_COMPUTE_A, AMPERE_CHANNEL_GPFIFO_A, AMPERE_DMA_COPY_B, AMPERE_USERMODE_A, FERMI_TWOD_A,
    KEPLER_INLINE_TO_MEMORY_B,
};

const ADA: ChipClasses = ChipClasses {
    channel: AMPERE_CHANNEL_GPFIFO_A,
    copy: &[AMPERE_DMA_COPY_B],
    three_d: ADA_A,
    compute: ADA_COMPUTE_A,
    two_d: FERMI_TWOD_A,
    to_memory: KEPLER_INLINE_TO_MEMORY_B,
    usermode: Some(AMPERE_USERMODE_A),
    display: None,
};

pub(super) static AD102: ChipRow = row(&gsp::AD102, Family::Ada, ADA);
pub(super) static AD103: ChipRow = row(&gsp::AD103, Family::Ada, ADA);
pub(super) static AD104: ChipRow = row(&gsp::AD104, Family::Ada, ADA);
pub(super) static AD106: ChipRow = row(&gsp::AD106, Family::Ada, ADA);
pub(super) static AD107: ChipRow = row(&gsp::AD107, Family::Ada, ADA);
