//! What a driver sees of a GPU: its register units, apertures and interrupt tree, whatever executes behind.
//!
//! One register face has two backs: the software GPU's engine core, and the mediator of a guest's vGPU. Both
//! implement [`backend::EngineBackend`]; the face implements [`crate::pci::PciFunction`] once for each chip.
//! docs/adr/0001-one-register-face.md says why.

pub mod backend;
pub mod clock;
pub mod gf100;
pub mod gh100;
