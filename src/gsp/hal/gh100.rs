//! Hopper.

use super::{Display, GspHal, Vectors};
use crate::abi::values::{MemoryUnits, Multiprocessor};
use gpuvmk_chip::gh100::CHANNELS_PER_RUNLIST;
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::{Chip, Engine, TextureClusters};

/// GH100.
pub static GH100: GspHal = HOPPER;

/// Firmware lays out the end of VRAM.
pub(super) const HOPPER: GspHal = GspHal {
    name: "Virtual GH100",
    short_name: "GH100",
    chip: Chip::GH100,
    mmu: Gmmu::V3,
    channels_per_runlist: CHANNELS_PER_RUNLIST,
    non_wpr_heap: 2 << 20,
    display: None,
    display_vectors: Display { stall: 0x61, low: 0x62 },
    cpu_sequencer: false,
    vectors: Vectors { gsp_stall: 0x60, non_stall, memory: 0x81 },
    graphics: TextureClusters::of(&[9; 8]),
    multiprocessor: Multiprocessor::of(0x900),
    memory: HBM,
};

/// As an H100's for PCIe. Only NVIDIA's own driver asks, and only to show it.
const HBM: MemoryUnits =
    MemoryUnits { ram_type: 0x13, bus_width: 5120, l2_bytes: 50 << 20, partitions: 10, partition_slices: 8 };

/// Drivers take vectors from the table of interrupts, so these are of our own choice.
const fn non_stall(engine: Engine) -> u32 {
    // CAST: widening.
    0x20 + engine.place() as u32
}
