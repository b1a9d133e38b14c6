//! Ada.

use super::gsp_row::row;
use super::{ChipClasses, ChipRow, DisplayClasses, Family};
use crate::gsp;
use crate::nv::classes::{
    AD102_DISP, AD102_DISP_CORE_CHANNEL_DMA, ADA_A, ADA_COMPUTE_A, AMPERE_CHANNEL_GPFIFO_A,
    AMPERE_DMA_COPY_B, AMPERE_USERMODE_A, FERMI_TWOD_A, GA102_DISP_CURSOR_IMM_CHANNEL_PIO,
    GA102_DISP_WINDOW_CHANNEL_DMA, GA102_DISP_WINDOW_IMM_CHANNEL_DMA, KEPLER_INLINE_TO_MEMORY_B,
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
    heads: None,
};

/// nouveau engine/disp/ad102.c.
const WITH_HEADS: ChipClasses = ChipClasses {
    heads: Some(DisplayClasses {
        root: AD102_DISP,
        core: AD102_DISP_CORE_CHANNEL_DMA,
        window: GA102_DISP_WINDOW_CHANNEL_DMA,
        immediate: GA102_DISP_WINDOW_IMM_CHANNEL_DMA,
        cursor: GA102_DISP_CURSOR_IMM_CHANNEL_PIO,
    }),
    ..ADA
};

pub(super) static AD102: ChipRow = row(&gsp::AD102, Family::Ada, ADA);
pub(super) static AD103: ChipRow = row(&gsp::AD103, Family::Ada, ADA);
pub(super) static AD104: ChipRow = row(&gsp::AD104, Family::Ada, WITH_HEADS);
pub(super) static AD106: ChipRow = row(&gsp::AD106, Family::Ada, ADA);
pub(super) static AD107: ChipRow = row(&gsp::AD107, Family::Ada, ADA);
