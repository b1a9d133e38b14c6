//! What chips do differently, as their GSP sees it: one [`GspHal`] a chip.
//!
//! Register accesses are the face's affair, whose own table has what differs there.

mod ada;
mod ampere;
mod blackwell;
mod gh100;
mod graphics;
mod turing;

pub use ada::*;
pub use ampere::*;
pub use blackwell::*;
pub use gh100::GH100;
pub use turing::*;

use crate::abi::values::{MemoryUnits, Multiprocessor};
use gpuvmk_chip::catalogue::ChipClasses;
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::{Chip, Engine, TextureClusters};

/// A chip, for its GSP.
#[derive(Debug)]
pub struct GspHal {
    /// Marketing name, ASCII, at most 63 letters.
    pub name: &'static str,
    /// Chip name, ASCII, at most 63 letters.
    pub short_name: &'static str,
    /// The chip whose classes it has.
    pub chip: Chip,
    /// The format of page tables.
    pub mmu: Gmmu,
    /// Channel numbers of a runlist, as the doorbell's token can name them.
    pub channels_per_runlist: u16,
    /// Bytes of the heap outside the protected region of VRAM, as drivers assume them.
    pub non_wpr_heap: u64,
    /// The display engine, where it cannot be fused off.
    pub display: Option<Display>,
    /// The vectors of one that a function has because it has a head.
    pub display_vectors: Display,
    /// Firmware has the driver run a sequence of register accesses before it is ready (RUN_CPU_SEQUENCER):
    /// where falcons boot it, that is how its own helper on SEC2 gets to run. Nova-core waits for it on these
    /// chips.
    pub cpu_sequencer: bool,
    /// Vectors that the table of interrupts tells of.
    pub vectors: Vectors,
    /// What the graphics engine of a whole chip has.
    pub graphics: TextureClusters,
    /// A multiprocessor.
    pub multiprocessor: Multiprocessor,
    /// What VRAM is told to be made of.
    pub memory: MemoryUnits,
}

/// Interrupt vectors of the VFN tree: leaf = vector / 32.
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    /// GSP has an event.
    pub gsp_stall: u32,
    /// Work on an engine asked for a notification.
    pub non_stall: fn(Engine) -> u32,
    /// The first of those about memory, which nothing raises but a driver that tries one out.
    pub memory: u32,
}

/// A display engine.
#[derive(Clone, Copy, Debug)]
pub struct Display {
    /// Its interrupt vector. Heads raise it.
    pub stall: u32,
    /// That for what can wait. Nothing ever raises it.
    pub low: u32,
}

impl GspHal {
    /// Its classes.
    pub const fn classes(&self) -> &'static ChipClasses {
        &self.chip.row().classes
    }
}

/// Declares chips of a family: constants, what they have in common, and the texture processing clusters of
/// each of their graphics processing clusters.
macro_rules! chips {
    ($family:path: $($chip:ident = $tpcs:expr;)+) => {
        $(
            #[doc = concat!(stringify!($chip), ".")]
            pub static $chip: GspHal = GspHal {
                name: concat!("Virtual ", stringify!($chip)),
                short_name: stringify!($chip),
                chip: gpuvmk_chip::Chip::$chip,
                graphics: gpuvmk_chip::TextureClusters::of(&$tpcs),
                ..$family
            };
        )+
    };
}
use chips;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const ALL: [&GspHal; 21] = [
        &TU102, &TU104, &TU106, &TU117, &TU116, &GA102, &GA103, &GA104, &GA106, &GA107, &GH100, &AD102,
        &AD103, &AD104, &AD106, &AD107, &GB202, &GB203, &GB205, &GB206, &GB207,
    ];

    #[test]
    fn names_fit_and_differ() {
        for (place, chip) in ALL.iter().enumerate() {
            assert!(chip.name.is_ascii() && chip.name.len() < 64 && chip.name.ends_with(chip.short_name));
            assert!(ALL[..place].iter().all(|other| other.short_name != chip.short_name));
        }
    }

    #[test]
    fn every_source_has_a_vector_of_its_own() {
        for chip in ALL {
            let display = [chip.display_vectors.stall, chip.display_vectors.low];
            let engines = Engine::ALL.iter().map(|engine| (chip.vectors.non_stall)(*engine));
            let memory = chip.vectors.memory..chip.vectors.memory + 7;
            let mut vectors: Vec<_> =
                std::iter::once(chip.vectors.gsp_stall).chain(memory).chain(display).chain(engines).collect();
            let count = vectors.len();
            vectors.sort_unstable();
            vectors.dedup();
            assert_eq!(vectors.len(), count, "{}", chip.short_name);
        }
    }

    #[test]
    fn each_chip_of_the_catalogue_has_a_row_with_its_name_and_display() {
        for chip in Chip::with_face(gpuvmk_chip::Face::Gsp) {
            let hal = ALL.iter().find(|hal| hal.chip == chip).unwrap();
            assert_eq!(hal.short_name, chip.name());
            assert_eq!(hal.display.is_some(), hal.classes().display.is_some(), "{chip}");
        }
    }
}
