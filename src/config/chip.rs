//! What a chip allows: how much VRAM a vGPU of it may have, and how many channels.

use super::reader::TableReader;
use super::value;
use crate::chip::Chip;
use crate::host::size::show_size;

/// Granule of the VRAM of vGPUs and of the software GPU, in bytes.
pub(super) const VRAM_GRANULE: u64 = 16 << 20;

/// What a chip allows, or any chip.
pub(super) struct Limits {
    /// VRAM of a vGPU: least and most.
    pub vram: (u64, u64),
    /// VRAM of the software GPU: least and most.
    pub soft_vram: (u64, u64),
    /// Most channels of a vGPU.
    pub channels: u64,
}

pub(super) fn limits(chip: Chip) -> Limits {
    Limits { vram: chip.vram, soft_vram: chip.software_vram, channels: chip.channels.into() }
}

/// What any chip allows.
pub(super) fn widest() -> Limits {
    let wider = |a: (u64, u64), b: (u64, u64)| (a.0.min(b.0), a.1.max(b.1));
    let none = Limits { vram: (u64::MAX, 0), soft_vram: (u64::MAX, 0), channels: 0 };
    Chip::ALL.iter().map(|chip| limits(*chip)).fold(none, |a, b| Limits {
        vram: wider(a.vram, b.vram),
        soft_vram: wider(a.soft_vram, b.soft_vram),
        channels: a.channels.max(b.channels),
    })
}

/// Chips to choose from, as a message has them.
pub(super) fn choice(chips: impl Iterator<Item = Chip>) -> String {
    Chip::list(chips, "\"", " or ")
}

/// The key `chip`. `None` when it is wrong.
pub(super) fn read(reader: &mut TableReader<'_, '_>, default: Chip) -> Option<Chip> {
    let words: Vec<(&str, Chip)> = Chip::ALL.iter().map(|chip| (chip.name(), *chip)).collect();
    reader.defaulted("chip", default, &choice(Chip::ALL.iter().copied()), |v| value::word(v, &words))
}

/// A range of VRAM in words, for the chip if it is known.
pub(super) fn vram_allowed(chip: Option<Chip>, range: fn(&Limits) -> (u64, u64)) -> String {
    let (least, most) = range(&chip.map_or_else(widest, limits));
    let whose = chip.map_or_else(|| ", by the chip".to_owned(), |chip| format!(" for a {chip}"));
    format!(
        "a multiple of \"{}\" from \"{}\" to \"{}\"{whose}",
        show_size(VRAM_GRANULE),
        show_size(least),
        show_size(most)
    )
}
