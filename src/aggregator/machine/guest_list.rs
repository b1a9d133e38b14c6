//! The list of VMs that may come, changed by operators.

use super::guests::Guest;
use super::state::Machine;
use gpuvmk_scheduler::share::Rejection;

impl Machine {
    /// Adds a VM to the list, or changes what it may have from its next connection on. Its part of the GPU's
    /// time changes with [`Machine::set`].
    ///
    /// # Errors
    /// There is no list, it is full, or the VM has its own socket, which only a new aggregator can make.
    pub fn allow_guest(&mut self, name: &str, guest: Guest) -> Result<(), Rejection> {
        self.guests.allow(name, guest)
    }

    /// Takes a VM off the list: it may not come again. If it is connected, it stays until it leaves.
    ///
    /// # Errors
    /// There is no list, or it does not have that VM.
    pub fn forbid_guest(&mut self, name: &str) -> Result<(), Rejection> {
        self.guests.forbid(name)
    }
}
