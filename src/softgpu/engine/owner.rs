//! Whose context an engine holds.

use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::HostChannel;

/// The owner of the context that an engine holds. A channel that was bound again is another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// `None` for a context that the driver made current by hand.
    pub(crate) channel: Option<HostChannel>,
    pub(crate) generation: u64,
    pub(crate) instance: PhysicalAddress,
}
