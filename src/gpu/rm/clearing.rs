//! Clearing of video memory, a piece at a time.

use super::abi::Handle;
use super::device::Device;
use crate::scrub::SCRUB_PIECE;
use crate::{GpuError, Scrub};

/// A piece that is being cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub usize);

/// Clears video memory while the owner serves tenants.
pub trait Cleaner: Send {
    /// Begins to write zeros to at most [`SCRUB_PIECE`] bytes; none while it has no room for more.
    ///
    /// # Errors
    /// The driver refuses.
    fn begin(
        &mut self,
        device: &Device,
        object: Handle,
        offset: u64,
        size: u64,
    ) -> Result<Option<Ticket>, GpuError>;

    /// How far that is: [`Scrub::Done`] once zeros were seen there. The ticket is void then, and after an
    /// error.
    ///
    /// # Errors
    /// They are not there, or not in time.
    fn look(&mut self, device: &Device, ticket: Ticket) -> Result<Scrub, GpuError>;

    /// Objects that it needs for that.
    fn objects(&self) -> Vec<Handle>;
}

/// A part of a partition that is being cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScrubRange {
    /// Where the partition begins.
    pub first: u64,
    pub from: u64,
    pub to: u64,
    pub ticket: Option<Ticket>,
}

/// Goes on with clearing a part of an object: what is left, if anything, and why that waits.
pub(super) fn clear(
    device: &Device,
    cleaner: &mut dyn Cleaner,
    object: Handle,
    range: &mut ScrubRange,
) -> Result<Scrub, GpuError> {
    let size = range.to.saturating_sub(range.from).min(SCRUB_PIECE);
    if size == 0 {
        return Ok(Scrub::Done);
    }
    let Some(ticket) = range.ticket else {
        range.ticket = cleaner.begin(device, object, range.from, size)?;
        return Ok(Scrub::Pending);
    };
    match cleaner.look(device, ticket)? {
        seen @ (Scrub::Pending | Scrub::More) => return Ok(seen),
        Scrub::Done | Scrub::Untouched => range.ticket = None,
    }
    range.from = range.from.saturating_add(size);
    Ok(if range.from >= range.to { Scrub::Done } else { Scrub::More })
}
