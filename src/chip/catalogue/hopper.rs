//! Hopper.

use super::{ChipClasses, ChipRow, Face, Family, Subchannels};
use crate::gh100;
use crate::nv::classes::{
    FERMI_TWOD_A, HOPPER_A, HOPPER_CHANNEL_GPFIFO_A, HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A, HOPPER_USERMODE_A,
    KEPLER_INLINE_TO_MEMORY_B,
};

/// GH100. Its firmware tells sizes in MiB, to far beyond the limits here. A stock driver needs about 30 MiB
/// for its own tables and buffers.
pub(super) static GH100: ChipRow = ChipRow {
    name: gh100::NAME,
    family: Family::Hopper,
    boot_0: gh100::BOOT_0,
    device_id: gh100::DEVICE_ID,
    face: Face::Gsp,
    subchannels: Subchannels::ByRunlist,
    classes: ChipClasses {
        channel: HOPPER_CHANNEL_GPFIFO_A,
        copy: &[HOPPER_DMA_COPY_A],
        three_d: HOPPER_A,
        compute: HOPPER_COMPUTE_A,
        two_d: FERMI_TWOD_A,
        to_memory: KEPLER_INLINE_TO_MEMORY_B,
        usermode: Some(HOPPER_USERMODE_A),
    },
    vram: (64 << 20, 64 << 30),
    software_vram: (64 << 20, 128 << 30),
    channels: 512,
};
