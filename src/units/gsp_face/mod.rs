//! The register face of a GPU whose driver asks GSP firmware: its boot, GSP's mailboxes, the VFN interrupt
//! tree, PRAMIN, BAR1 and BAR2, TLB invalidation, doorbells. Everything else is asked of [`gpuvmk_gsp`].
//!
//! [`GspFunction`] is a PCI function over a [`GspBackend`]. What generations of chips do differently is in
//! [`hal`], one row a generation. Each unit is a pure model in a file of its own; a register write returns
//! its consequences as [`effect`] values, which the function carries out.
//!
//! Not modelled: the configuration space's mirror in BAR0, MSI-X, the alarm of PTIMER, access counters and
//! fault buffers, every unit that a driver reaches by messages to GSP only.

mod bar0;
mod boot;
mod config;
mod core;
mod effect;
mod face;
mod falcon;
mod frames;
mod function;
pub mod hal;
mod identity_page;
mod invalidate;
mod later;
mod memory;
mod registers;
#[cfg(test)]
mod tests;
mod tokens;
mod unreported_stops;
mod vfn;
mod windows;

pub use config::{GspFaceConfig, HeadConfig};
pub use core::GspFaceState;
pub use function::GspFunction;

/// The states of the units, parts of [`GspFaceState`].
pub mod state {
    pub use super::boot::falcons::{FalconState, FalconsState};
    pub use super::boot::fsp::FspState;
    pub use super::falcon::{Firmware, GspFalconState};
    pub use super::invalidate::MmuInvalidateState;
    pub use super::registers::RegistersState;
    pub use super::unreported_stops::UnreportedStopsState;
    pub use super::vfn::VfnState;
    pub use crate::interrupt::InterruptOutputState;
    pub use crate::ptimer::PtimerState;
    pub use gpuvmk_gsp::saved_state::*;
    pub use gpuvmk_gsp::{GspPhase, GspState};
}

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(doc)]
use gpuvmk_backend::GspBackend;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Models do not panic; if one did all the same, its state is still the best there is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
