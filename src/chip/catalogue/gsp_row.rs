//! What all chips have in common whose drivers ask GSP.

use super::{ChipClasses, ChipRow, Face, Family, Subchannels};
use crate::gsp::{GspChip, KINDS};

/// A row. GSP tells sizes in MiB, to far beyond the limits here. A stock driver needs about 30 MiB for its
/// own tables and buffers.
pub(super) const fn row(chip: &GspChip, family: Family, classes: ChipClasses) -> ChipRow {
    ChipRow {
        name: chip.name,
        family,
        boot_0: chip.boot_0,
        device_id: chip.device_id,
        face: Face::Gsp,
        subchannels: Subchannels::ByRunlist,
        classes,
        kinds: &KINDS,
        vram: (64 << 20, 64 << 30),
        software_vram: (64 << 20, 128 << 30),
        channels: 512,
        tried: true,
    }
}
