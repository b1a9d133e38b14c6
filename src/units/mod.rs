//! The register face of a GPU: units, apertures and interrupt tree, over any back that executes.
//!
//! A register face stands over a back: the software GPU's engine core, or the mediator of a guest's vGPU.
//! They implement [`gpuvmk_backend::Backend`] with the refinement of the chip's kind; the face implements
//! [`gpuvmk_pci::PciFunction`] once for each chip. docs/adr/0001-one-register-face.md says why.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod counters;
mod direct_windows;
pub mod display;
pub mod gf100;
pub mod gsp_face;
mod interest_tracker;
mod interrupt;
#[cfg(test)]
mod played;
mod ptimer;

pub use gpuvmk_control_client::{DriverCounters, FaceCounters, GspCounters, LookCounters};
pub use gpuvmk_display::Head;

use gpuvmk_pci::config_space::BuildError;
use gpuvmk_saved_state::StateError;

/// Why a function cannot be had in a saved state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The function cannot be had at all.
    #[error(transparent)]
    Function(#[from] BuildError),
    /// The state is refused.
    #[error(transparent)]
    State(#[from] StateError),
}
