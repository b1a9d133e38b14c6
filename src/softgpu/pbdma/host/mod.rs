//! The host unit's own methods: those below 0x100, by the class of channel that a chip has.

pub(crate) mod fermi;
pub(crate) mod hopper;

use super::ending::Ending;
use super::loaded::Loaded;
use crate::fifo::ramfc::{AddressMasks, Semaphore};
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::stream::Method;

/// What a class of channel adds to parsing and scheduling, which all have in common.
pub(crate) trait HostClass: Send + Sync + std::fmt::Debug {
    /// Executes a method below 0x100, other than SET_OBJECT.
    fn method(&self, loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending>;

    /// SET_OBJECT, before its engine gets it.
    fn bind(&self, loaded: &mut Loaded<'_>, method: Method) -> Result<(), Ending>;

    /// A ring entry without words.
    fn control_entry(&self, loaded: &mut Loaded<'_>, entry: u64) -> Result<(), Ending>;

    /// True when the memory is as the acquire wants it.
    fn reached(&self, loaded: &Loaded<'_>, semaphore: &Semaphore) -> Result<bool, MmuFault>;
}

/// A chip's host unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostUnit {
    /// Its methods.
    pub(crate) class: &'static dyn HostClass,
    /// How wide the addresses in RAMFC are.
    pub(crate) masks: AddressMasks,
}
