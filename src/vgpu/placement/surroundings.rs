//! The parts of the vGPU that page placement needs.

use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;

use crate::memory::Window;
use crate::quotas::Meters;
use crate::status::{Counters, FailSafe};
use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::Request;

/// The way to the aggregator.
pub trait Requests {
    /// Sends a request with its file, if it has one, and waits for the answer.
    ///
    /// # Errors
    /// The aggregator refuses it, or is gone.
    fn send(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError>;
}

/// The address spaces through which engines reach VRAM.
pub trait Engines {
    /// Sends every mapping of a range of VRAM again.
    ///
    /// # Errors
    /// The vGPU must go into fail-safe state.
    fn map_again(&self, vram: Range<u64>) -> Result<(), FailSafe>;
}

/// The parts that moving a page needs.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    pub window: &'a Window,
    pub counters: &'a Counters,
    pub meters: &'a Meters,
    pub engines: &'a dyn Engines,
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings").field("window", &self.window).finish_non_exhaustive()
    }
}
