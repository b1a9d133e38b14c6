//! How a driver gets GSP to run: the units that only one boot flow has, behind one type.
//!
//! A flow ends with [`GspArguments`], of which GSP boots or resumes; the rest of the face does not know which
//! flow that was. There are two: FSP's ([`fsp`]), and that of two falcons ([`falcons`]).

mod arguments;
pub mod falcons;
pub mod fsp;
mod vbios;

pub use arguments::GspArguments;

use super::falcon::GspFalcon;
use super::hal::{Boot, Hal};
use falcons::{FalconError, Falcons, FalconsState};
use fsp::{Fsp, FspError, FspState};
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::StateError;

/// The units of a boot flow.
#[derive(Clone, Debug)]
pub enum BootUnit {
    /// FSP.
    Fsp(Box<Fsp>),
    /// GSP's falcon and SEC2's.
    Falcons(Box<Falcons>),
}

/// What a driver asks for by a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// FSP is to boot GSP. It owes an answer.
    Fsp {
        /// Bus address of what says where GSP's arguments are.
        parameters: u64,
    },
    /// Something that falcons need memory for.
    Falcons(falcons::Request),
}

/// Why a flow refuses what a driver asks for. The driver has found the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootRefusal {
    /// FSP's.
    #[error("FSP refuses a message: {0}")]
    Fsp(#[from] FspError),
    /// A falcon's, or its firmware's.
    #[error("A falcon's firmware does not do its work: {0}")]
    Falcons(#[from] FalconError),
}

/// State of a [`BootUnit`]. That of other flows is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootState {
    /// FSP.
    pub fsp: Option<FspState>,
    /// Both falcons.
    pub falcons: Option<FalconsState>,
}

impl BootUnit {
    /// Units in their reset state.
    pub fn new(hal: &Hal) -> Self {
        match hal.boot {
            Boot::Fsp(boot) => Self::Fsp(Box::new(Fsp::new(boot))),
            Boot::Falcons(boot) => Self::Falcons(Box::new(Falcons::new(boot, hal.pci.device_id))),
        }
    }

    /// Reads a register; 0 for those of others.
    pub fn read(&mut self, reg: Reg, gsp: &GspFalcon) -> u32 {
        match self {
            Self::Fsp(fsp) => fsp.read(reg),
            Self::Falcons(falcons) => falcons.read(reg, gsp),
        }
    }

    /// Writes a register. Those of others do nothing. VRAM has that many bytes.
    ///
    /// # Errors
    /// What the driver asks for is refused.
    pub fn write(
        &mut self,
        reg: Reg,
        word: Word,
        gsp: &mut GspFalcon,
        vram: u64,
    ) -> Result<Option<Request>, BootRefusal> {
        Ok(match self {
            Self::Fsp(fsp) => fsp.write(reg, word)?.map(|parameters| Request::Fsp { parameters }),
            Self::Falcons(falcons) => falcons.write(reg, word, gsp, vram)?.map(Request::Falcons),
        })
    }

    /// FSP, where there is one.
    pub fn fsp(&mut self) -> Option<&mut Fsp> {
        match self {
            Self::Fsp(fsp) => Some(fsp),
            Self::Falcons(_) => None,
        }
    }

    /// Both falcons, where they boot GSP.
    pub fn falcons(&mut self) -> Option<&mut Falcons> {
        match self {
            Self::Fsp(_) => None,
            Self::Falcons(falcons) => Some(falcons),
        }
    }

    /// The state to save.
    pub fn state(&self) -> BootState {
        match self {
            Self::Fsp(fsp) => BootState { fsp: Some(fsp.state()), falcons: None },
            Self::Falcons(falcons) => BootState { fsp: None, falcons: Some(falcons.state()) },
        }
    }

    /// Units in a saved state.
    ///
    /// # Errors
    /// A unit refuses its state, or the state is of another flow.
    pub fn from_state(state: &BootState, hal: &Hal) -> Result<Self, StateError> {
        match (hal.boot, state) {
            (Boot::Fsp(boot), BootState { fsp: Some(fsp), falcons: None }) => {
                Fsp::from_state(fsp, boot).map(|fsp| Self::Fsp(Box::new(fsp)))
            }
            (Boot::Falcons(boot), BootState { fsp: None, falcons: Some(falcons) }) => {
                let falcons = Falcons::from_state(falcons, boot, hal.pci.device_id)?;
                Ok(Self::Falcons(Box::new(falcons)))
            }
            _ => Err(StateError::new("boot", "it is of a chip that boots in another way")),
        }
    }
}
