//! How a driver gets GSP to run: the units that only one boot flow has, behind one type.
//!
//! A flow ends with [`GspArguments`], of which GSP boots or resumes; the rest of the face does not know which
//! flow that was. There is one: FSP's ([`fsp`]).

mod arguments;
pub mod fsp;

pub use arguments::GspArguments;

use super::hal::Boot;
use fsp::{Fsp, FspError, FspState, Request};
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::StateError;

/// The units of a boot flow.
#[derive(Clone, Debug)]
pub enum BootUnit {
    /// FSP.
    Fsp(Fsp),
}

impl BootUnit {
    /// Units in their reset state.
    pub const fn new(boot: Boot) -> Self {
        match boot {
            Boot::Fsp(boot) => Self::Fsp(Fsp::new(boot)),
        }
    }

    /// Reads a register; 0 for those of others.
    pub fn read(&mut self, reg: Reg) -> u32 {
        match self {
            Self::Fsp(fsp) => fsp.read(reg),
        }
    }

    /// Writes a register. Those of others do nothing.
    pub fn write(&mut self, reg: Reg, word: Word) -> Option<Request> {
        match self {
            Self::Fsp(fsp) => fsp.write(reg, word),
        }
    }

    /// Answers [`Request::Boot`].
    pub fn booted(&mut self, result: Result<(), FspError>) {
        match self {
            Self::Fsp(fsp) => fsp.booted(result),
        }
    }

    /// The state to save.
    pub fn state(&self) -> FspState {
        match self {
            Self::Fsp(fsp) => fsp.state(),
        }
    }

    /// Units in a saved state.
    ///
    /// # Errors
    /// A unit refuses its state.
    pub fn from_state(state: &FspState, boot: Boot) -> Result<Self, StateError> {
        match boot {
            Boot::Fsp(boot) => Fsp::from_state(state, boot).map(Self::Fsp),
        }
    }
}
