//! Fermi.

use super::{ChipClasses, ChipRow, Face, Family, Subchannels};
use crate::gf100;
use crate::nv::classes::{
    FERMI_A, FERMI_CHANNEL_GPFIFO, FERMI_COMPUTE_A, FERMI_DECOMPRESS, FERMI_DMA,
    FERMI_MEMORY_TO_MEMORY_FORMAT_A, FERMI_TWOD_A,
};

/// GF100. No card of it had more than 6 GiB. A stock driver needs about 16 MiB for its own tables and
/// buffers.
pub(super) static GF100: ChipRow = ChipRow {
    name: gf100::NAME,
    family: Family::Fermi,
    boot_0: gf100::BOOT_0,
    device_id: gf100::DEVICE_ID,
    face: Face::Registers,
    subchannels: Subchannels::ByClass,
    classes: ChipClasses {
        channel: FERMI_CHANNEL_GPFIFO,
        copy: &[FERMI_DMA, FERMI_DECOMPRESS],
        three_d: FERMI_A,
        compute: FERMI_COMPUTE_A,
        two_d: FERMI_TWOD_A,
        to_memory: FERMI_MEMORY_TO_MEMORY_FORMAT_A,
        usermode: None,
        display: None,
        heads: None,
    },
    kinds: &gf100::KINDS,
    vram: (32 << 20, 6 << 30),
    software_vram: (64 << 20, 32 << 30),
    channels: gf100::CHANNELS,
    tried: true,
};
