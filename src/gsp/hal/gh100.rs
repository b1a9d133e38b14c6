//! Hopper.

use super::{GspHal, Vectors};
use gpuvmk_chip::Engine;
use gpuvmk_chip::gh100::CHANNELS_PER_RUNLIST;

/// GH100. Its page tables are of version 3: the top one has two entries, for 2^56 bytes each.
pub static GH100: GspHal = GspHal {
    name: "Virtual GH100",
    short_name: "GH100",
    bar_pde_shift: 56,
    channels_per_runlist: CHANNELS_PER_RUNLIST,
    vectors: Vectors { gsp_stall: 0x60, non_stall },
};

/// Drivers take vectors from the table of interrupts, so these are of our own choice.
const fn non_stall(engine: Engine) -> u32 {
    // CAST: widening.
    0x20 + engine.place() as u32
}
