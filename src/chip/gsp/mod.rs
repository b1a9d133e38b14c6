//! What chips whose driver asks firmware (GSP) have in common, from Turing to Blackwell, and what differs
//! between their families: registers, structures in memory, and the list of chips.
//!
//! Sources: open-gpu-kernel-modules (r570 and r580), Linux `drivers/gpu/drm/nouveau` and
//! `drivers/gpu/nova-core`.

mod chips;
pub mod falcon;
pub mod fsp;
pub mod fwsec;
mod kinds;
pub mod regs;
pub mod userd;
pub mod wpr;

pub use chips::*;
pub use kinds::{KINDS, SMSKED_MESSAGE};
