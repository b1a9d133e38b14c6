//! Scripts of the register writes by which a stock driver brought a card up, for the aggregator to repeat.
//!
//! A card that was not initialised since power-on needs more than the registers that this program knows:
//! memory and clocks set up as its board wants them, and firmware in its falcons. A stock driver in a guest
//! that has the whole card does that, and a trace of its accesses ([`gpuvmk_trace`]) shows how. [`Recorder`]
//! takes the accesses to the units from the trace, in [`Section`]s that can be played one by one. It leaves
//! out accesses about that guest's memory, channels and interrupts ([`SkipReason`]); the register driver does
//! those itself. The rules are data ([`rules`]).
//!
//! An operator makes such a script from his own card (`gpuvmk gpu init`), and keeps it as a file
//! ([`Script::to_text`]): none comes with this program.

mod record;
pub mod rules;
mod text;

#[cfg(test)]
mod tests;

pub use record::{NoScript, Recorder, Report};
pub use rules::{Section, SkipReason};
pub use text::BadScript;

use gpuvmk_chip::registers::Reg;
use gpuvmk_ordered::OrderedMap;

/// Most steps of a script: some hundred times what drivers take.
pub const MOST_STEPS: usize = 1 << 20;

/// One thing that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A register was written.
    Write {
        /// The register.
        reg: Reg,
        /// The value to write.
        value: u32,
    },
    /// A register was read until these bits had this value.
    Wait {
        /// The register.
        reg: Reg,
        /// The bits that are compared.
        mask: u32,
        /// The value of these bits.
        value: u32,
    },
}

/// The steps that bring a card up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// NV_PMC_BOOT_0 of the card that it was made from.
    pub boot_0: u32,
    /// Its PCI device, of vendor NVIDIA.
    pub device: u16,
    /// CRC-32 of its VBIOS, if the operator gave that when it was made.
    pub vbios: Option<u32>,
    /// NV_PMC_ENABLE when its units were up.
    pub units: u32,
    /// The steps by section, in the order in which they were done.
    pub sections: OrderedMap<Section, Vec<Step>>,
}

impl Script {
    /// The steps of a section; none if the driver did not do that.
    pub fn section(&self, section: Section) -> Option<&[Step]> {
        self.sections.get(&section).map(Vec::as_slice)
    }

    /// Number of steps of all sections.
    pub fn steps(&self) -> usize {
        self.sections.values().map(Vec::len).sum()
    }
}
