//! The host unit's own methods: those below 0x100, by the class of channel that a chip has.

pub(crate) mod fermi;
pub(crate) mod hopper;

use std::time::{Duration, Instant};

use crate::fifo::Departure;
use crate::fifo::ramfc::{Method, Semaphore};
use crate::pbdma::Ending;
use crate::pbdma::execution::Execution;
use gpuvmk_chip::gf100::methods::pbdma_intr;
use gpuvmk_units::backend::MmuFault;

/// USERD: the reference count, written by hardware.
pub(crate) const USERD_REFERENCE: u64 = 0x48;

/// What a class of channel adds to parsing and scheduling, which all have in common.
pub(crate) trait HostClass: Send + Sync + std::fmt::Debug {
    /// Executes a method below 0x100, other than SET_OBJECT.
    fn method(&self, execution: &mut Execution<'_>, method: Method) -> Result<(), Ending>;

    /// SET_OBJECT, before its engine gets it.
    fn bind(&self, execution: &mut Execution<'_>, method: Method) -> Result<(), Ending>;

    /// A ring entry without words.
    fn control_entry(&self, execution: &mut Execution<'_>, entry: u64) -> Result<(), Ending>;

    /// True when the memory is as the acquire wants it.
    fn reached(&self, execution: &Execution<'_>, semaphore: &Semaphore) -> Result<bool, MmuFault>;
}

impl Execution<'_> {
    /// Looks at the semaphore of a pending acquire: goes on, or lets others run until the next look.
    pub(crate) fn acquire(&mut self) -> Result<(), Ending> {
        let semaphore = self.state.semaphore;
        if self.shared.hardware.chip.host.reached(self, &semaphore)? {
            self.state.semaphore.pending = false;
            self.job.acquired();
            return Ok(());
        }
        let waited = self.job.waiting_since.map_or(Duration::ZERO, |since| Instant::now() - since);
        if self.state.acquire_limit().is_some_and(|limit| waited > Duration::from_micros(limit)) {
            return Err(self.host_error(pbdma_intr::ACQUIRE_TIMEOUT, None));
        }
        Err(Departure::Blocked.into())
    }
}
