//! Hopper.

use super::gsp_row::row;
use super::{ChipClasses, ChipRow, Family};
use crate::gsp;
use crate::nv::classes::{
    FERMI_TWOD_A, HOPPER_A, HOPPER_CHANNEL_GPFIFO_A, HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A, HOPPER_USERMODE_A,
    KEPLER_INLINE_TO_MEMORY_B,
};

const HOPPER: ChipClasses = ChipClasses {
    channel: HOPPER_CHANNEL_GPFIFO_A,
    copy: &[HOPPER_DMA_COPY_A],
    three_d: HOPPER_A,
    compute: HOPPER_COMPUTE_A,
    two_d: FERMI_TWOD_A,
    to_memory: KEPLER_INLINE_TO_MEMORY_B,
    usermode: Some(HOPPER_USERMODE_A),
    display: None,
    heads: None,
};

pub(super) static GH100: ChipRow = row(&gsp::GH100, Family::Hopper, HOPPER);
