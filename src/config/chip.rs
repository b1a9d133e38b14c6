//! What a chip allows: how much VRAM a vGPU of it may have, and how many channels.

use super::reader::TableReader;
use super::value;
use crate::chip::Chip;
use crate::host::size::show_size;

/// Granule of the VRAM of vGPUs and of the software GPU, in bytes.
pub(super) const VRAM_GRANULE: u64 = 16 << 20;

const CHIP_ALLOWED: &str = "\"GF100\" or \"GH100\"";
const CHIPS: [(&str, Chip); 2] = [(Chip::Gf100.name(), Chip::Gf100), (Chip::Gh100.name(), Chip::Gh100)];

/// Limits of one chip.
pub(super) struct Limits {
    /// VRAM of a vGPU: least and most. A stock driver needs about 16 MiB (GF100) or 30 MiB (GH100) for its
    /// own tables and buffers; no GF100 had more than 6 GiB, and a GH100's firmware tells sizes in MiB to far
    /// beyond 64 GiB.
    pub vram: (u64, u64),
    /// VRAM of the software GPU, the host's own share included.
    pub soft_vram: (u64, u64),
    /// Most channels of a vGPU. GF100 has 128 channels in all.
    pub channels: u64,
}

pub(super) const fn limits(chip: Chip) -> Limits {
    match chip {
        Chip::Gf100 => Limits { vram: (32 << 20, 6 << 30), soft_vram: (64 << 20, 32 << 30), channels: 128 },
        Chip::Gh100 => Limits { vram: (64 << 20, 64 << 30), soft_vram: (64 << 20, 128 << 30), channels: 512 },
    }
}

/// What any chip allows.
pub(super) fn widest() -> Limits {
    let wider = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1.max(b.1));
    let (a, b) = (limits(Chip::Gf100), limits(Chip::Gh100));
    Limits {
        vram: wider(a.vram, b.vram),
        soft_vram: wider(a.soft_vram, b.soft_vram),
        channels: a.channels.max(b.channels),
    }
}

/// The key `chip`. `None` when it is wrong.
pub(super) fn read(reader: &mut TableReader<'_, '_>, default: Chip) -> Option<Chip> {
    reader.defaulted("chip", default, CHIP_ALLOWED, |v| value::word(v, &CHIPS))
}

/// A range of VRAM in words, for the chip if it is known.
pub(super) fn vram_allowed(chip: Option<Chip>, range: fn(&Limits) -> (u64, u64)) -> String {
    let one = |chip: Chip| {
        let (least, most) = range(&limits(chip));
        format!("from \"{}\" to \"{}\" for a {chip}", show_size(least), show_size(most))
    };
    let ranges: Vec<String> =
        chip.map_or_else(|| Chip::ALL.to_vec(), |chip| vec![chip]).into_iter().map(one).collect();
    format!("a multiple of \"{}\" {}", show_size(VRAM_GRANULE), ranges.join(", "))
}
