//! The rest of a request that is too long for one turn.

use std::collections::VecDeque;

use super::refusal::Refusal;
use crate::dma_range::DmaRange;
use crate::protocol::{GuestMapping, GuestTarget, RefusalKind, SpaceId};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GpuVa, GuestChannel, GuestVram};
use gpuvmk_gpu::{Revocation, SpaceHandle, SpaceUpdate};

/// The rest of a long request.
#[derive(Debug)]
pub enum Job {
    /// Changes of an address space.
    Update(Box<Update>),
    /// Memory to remove.
    Release(Withdrawal),
    /// An address space to clear and give up.
    Destroy(SpaceHandle),
    /// A channel to make.
    Channel(ChannelShape),
}

/// A channel as its tenant wants it.
#[derive(Clone, Copy, Debug)]
pub struct ChannelShape {
    /// Its number.
    pub(crate) id: GuestChannel,
    /// Its address space.
    pub(crate) space: SpaceId,
    /// Where its ring is.
    pub(crate) gpfifo: GpuVa,
    /// log2 of the ring's entries.
    pub(crate) gpfifo_entries_log2: u8,
    /// Where its USERD is.
    pub(crate) userd: GuestVram,
    /// Engines that it has contexts for.
    pub(crate) engines: EngineSet,
    /// The channel whose graphics context it shares.
    pub(crate) context_of: Option<GuestChannel>,
}

/// Changes of an address space.
#[derive(Debug)]
pub struct Update {
    /// The address space.
    pub(crate) space: SpaceHandle,
    /// Checked, and for the driver to do first.
    pub(crate) ready: SpaceUpdate,
    /// Well-formed; where they point is checked when it is their turn.
    pub(crate) map: VecDeque<GuestMapping>,
    /// Host memory that the space's tables may take, in bytes.
    pub(crate) table_budget: u64,
    /// Pages in the tenant's other spaces.
    pub(crate) other_pages: u64,
    /// Pages that point outside, and the first.
    pub(crate) bad_pages: u64,
    pub(crate) first_bad: Option<(GpuVa, GuestTarget)>,
    /// Why others cannot be mapped.
    pub(crate) unmappable: Option<String>,
    /// Time in the driver so far, in nanoseconds.
    pub(crate) nanos: u64,
}

impl Update {
    /// The answer to the request.
    pub(crate) fn verdict(&self) -> Result<(), Refusal> {
        let refuse = |message| Err(Refusal::new(RefusalKind::OutsidePartition, message));
        match (self.first_bad, &self.unmappable) {
            (None, None) => Ok(()),
            (Some((va, target)), _) => refuse(format!(
                "{} pages point outside the VM's VRAM and memory and are left as faults; the first is {va} to {target:?}",
                self.bad_pages
            )),
            (None, Some(why)) => refuse(why.clone()),
        }
    }
}

/// Memory ranges that are being removed.
#[derive(Debug)]
pub struct Withdrawal {
    /// Those that are left; the last one is under way.
    pub(crate) ranges: Vec<DmaRange>,
    /// Address spaces that may still name it, once that was looked up.
    pub(crate) spaces: Option<Vec<SpaceHandle>>,
    /// How far the last of them is.
    pub(crate) revocation: Option<Revocation>,
}

impl Withdrawal {
    /// The removal of these ranges.
    pub(crate) const fn new(ranges: Vec<DmaRange>) -> Self {
        Self { ranges, spaces: None, revocation: None }
    }
}
