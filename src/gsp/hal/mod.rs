//! What chips do differently, as their GSP sees it: one [`GspHal`] a chip.
//!
//! Register accesses are the face's affair, whose own table has what differs there.

mod gh100;

pub use gh100::GH100;

use gpuvmk_chip::Engine;
use gpuvmk_chip::gmmu::Gmmu;

/// A chip, for its GSP.
#[derive(Debug)]
pub struct GspHal {
    /// Marketing name, ASCII, at most 63 letters.
    pub name: &'static str,
    /// Chip name, ASCII, at most 63 letters.
    pub short_name: &'static str,
    /// The format of page tables.
    pub mmu: Gmmu,
    /// Channel numbers of a runlist, as the doorbell's token can name them.
    pub channels_per_runlist: u16,
    /// Vectors that the table of interrupts tells of.
    pub vectors: Vectors,
}

/// Interrupt vectors of the VFN tree: leaf = vector / 32.
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    /// GSP has an event.
    pub gsp_stall: u32,
    /// Work on an engine asked for a notification.
    pub non_stall: fn(Engine) -> u32,
}
