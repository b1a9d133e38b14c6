//! Blackwell.

use super::gsp_row::row;
use super::{ChipClasses, ChipRow, Family};
use crate::gsp;
use crate::nv::classes::{
    BLACKWELL_B, BLACKWELL_CHANNEL_GPFIFO_B, BLACKWELL_COMPUTE_B, BLACKWELL_DMA_COPY_B,
    BLACKWELL_INLINE_TO_MEMORY_A, BLACKWELL_USERMODE_A, FERMI_TWOD_A, NVCA70_DISPLAY,
};

/// No register says that the display is fused off. Its class: nouveau engine/disp/gb202.c.
const BLACKWELL: ChipClasses = ChipClasses {
    channel: BLACKWELL_CHANNEL_GPFIFO_B,
    copy: &[BLACKWELL_DMA_COPY_B],
    three_d: BLACKWELL_B,
    compute: BLACKWELL_COMPUTE_B,
    two_d: FERMI_TWOD_A,
    to_memory: BLACKWELL_INLINE_TO_MEMORY_A,
    usermode: Some(BLACKWELL_USERMODE_A),
    display: Some(NVCA70_DISPLAY),
    heads: None,
};

pub(super) static GB202: ChipRow = row(&gsp::GB202, Family::Blackwell, BLACKWELL);
pub(super) static GB203: ChipRow = row(&gsp::GB203, Family::Blackwell, BLACKWELL);
pub(super) static GB205: ChipRow = row(&gsp::GB205, Family::Blackwell, BLACKWELL);
pub(super) static GB206: ChipRow = row(&gsp::GB206, Family::Blackwell, BLACKWELL);
pub(super) static GB207: ChipRow = row(&gsp::GB207, Family::Blackwell, BLACKWELL);
