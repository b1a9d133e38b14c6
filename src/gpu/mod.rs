//! The physical GPU as the aggregator uses it: address spaces, channels and events, behind one trait.
//!
//! Drivers: `register` (GF100 to GM107 over any `PciFunction`), `rm` (a GPU whose host keeps the NVIDIA
//! driver loaded), and the software GPU's `executor`. `vfio` makes a real card such a `PciFunction`. All
//! addresses here are host addresses: whoever calls has checked them.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod budget;
pub mod init_script;
mod own_channel;
pub mod register;
pub mod rehearsal;
pub mod rm;
pub mod scrub;
pub mod space_map;
mod space_update;
pub mod vfio;

use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use self::budget::{Budget, Progress};
use self::scrub::ScrubReport;
pub use self::space_update::{Revocation, SpaceUpdate};
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram, Iova, TenantId};
use gpuvmk_chip::{Engine, EngineSet, StorageKinds};
use gpuvmk_pci::{CardUse, DmaError, DmaMapping, SharedMemory};
use gpuvmk_units::backend::{ChannelError, GraphicsError, HostError, MmuFault};

/// A host address space (one shadow page-table tree).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceHandle(pub u32);

/// What the physical GPU offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Chip name as users write it, such as `GF100`.
    pub chip: String,
    /// First byte of VRAM that tenants may get.
    pub tenant_vram: HostVram,
    /// Bytes from there.
    pub tenant_vram_size: u64,
    /// Granule of partitions: a partition starts and ends at multiples of it.
    pub partition_granule: u64,
    /// Channels that tenants may get together.
    pub channels: u16,
    /// Engines.
    pub engines: EngineSet,
    /// What a channel's USERD must be a multiple of, and its size: a page on GF100, 512 bytes on GH100.
    pub userd_granule: u64,
    /// True when CPU reads of VRAM are slow (uncached, over the bus): whoever reads it often should remember
    /// it.
    pub slow_vram_reads: bool,
    /// Virtual addresses of an address space are below 2 to this.
    pub va_bits: u8,
    /// Page sizes of an address space, as log2.
    pub page_shifts: Vec<u8>,
    /// Bus addresses of system memory are below 2 to this.
    pub system_bits: u8,
    /// First bus address that tenants' memory may get; those below are the driver's own.
    pub first_iova: Iova,
    /// Address spaces at once, those for channels of the host's own among them.
    pub spaces: u32,
    /// Host memory for the page tables of all address spaces together, in bytes.
    pub table_memory: u64,
    /// Storage kinds of pages.
    pub kinds: &'static StorageKinds,
}

/// What an address space holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SpaceUsage {
    /// Host memory that its tables take, in bytes.
    pub table_bytes: u64,
    /// Valid pages of all sizes.
    pub pages: u64,
}

/// What a mapping points at, in host terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTarget {
    /// Video memory.
    Vram(HostVram),
    /// System memory by bus address.
    System {
        /// First byte.
        iova: Iova,
        /// True for snooped accesses.
        coherent: bool,
    },
}

/// One run of equal pages to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMapping {
    /// First virtual address; a multiple of the page size.
    pub va: GpuVa,
    /// Number of pages; virtual and target addresses advance together.
    pub pages: u32,
    /// log2 of the page size: 12, 16 or 17 on Fermi.
    pub page_shift: u8,
    /// Where it points.
    pub target: HostTarget,
    /// True when stores fault.
    pub read_only: bool,
    /// Storage kind (0 is pitch-linear).
    pub kind: u8,
}

/// A run of virtual pages to unmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// First virtual address.
    pub va: GpuVa,
    /// Number of pages.
    pub pages: u32,
    /// log2 of the page size.
    pub page_shift: u8,
}

/// What a host channel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Address space that its ring, pushbuffers and engines use.
    pub space: SpaceHandle,
    /// Virtual address of the GPFIFO ring.
    pub gpfifo: GpuVa,
    /// log2 of its entries.
    pub gpfifo_entries_log2: u8,
    /// Page with GP_PUT and GP_GET (the guest's own, inside its partition).
    pub userd: HostVram,
    /// Engines that it gets contexts for.
    pub engines: EngineSet,
}

/// Why the physical GPU could not do something.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// Out of channels, spaces or host memory.
    #[error("The physical GPU has no {what} left ({limit} in all)")]
    Exhausted {
        /// What there is none of.
        what: &'static str,
        /// How many there are.
        limit: u64,
    },
    /// An id that was not given out, or was taken back.
    #[error("No such {what} on the physical GPU: {id}")]
    NoSuch {
        /// What was named.
        what: &'static str,
        /// Its number.
        id: u64,
    },
    /// Pages that stay faults, and nothing else is the matter: virtual addresses that the GPU's manager keeps
    /// for itself, or memory that cannot be made reachable.
    #[error("{0}")]
    Unmappable(String),
    /// A class that the channel's engines do not have, or that tenants may not use.
    #[error("The physical GPU offers no class {class:#06x} on {engine:?} to tenants")]
    NoClass {
        /// Class number.
        class: u32,
        /// Engine.
        engine: Engine,
    },
    /// A caller's mistake that would program the hardware wrongly.
    #[error("Invalid request to the physical GPU: {0}")]
    Invalid(String),
    /// Hardware did not answer in time.
    #[error("The physical GPU did not finish {what} within {millis} ms")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        millis: u64,
    },
    /// System memory could not be made reachable.
    #[error("System memory cannot be made reachable for the physical GPU")]
    Dma(#[from] DmaError),
    /// Input or output failed.
    #[error("The physical GPU's resources are not accessible")]
    Io(#[from] std::io::Error),
    /// The NVIDIA driver that has the GPU refused.
    #[error(transparent)]
    Rm(rm::RmError),
    /// The device is gone.
    #[error("The physical GPU is lost")]
    Lost,
}

impl GpuError {
    /// For failures to make memory reachable, which leave page tables as they were: its pages stay faults,
    /// and nothing is in doubt. A lost GPU, and hardware that did not answer, stay what they are.
    #[must_use]
    pub fn as_unmappable(self) -> Self {
        match self {
            Self::Lost | Self::Timeout { .. } | Self::Unmappable(_) => self,
            error => Self::Unmappable(error.with_causes()),
        }
    }

    /// What it says, and what its causes say.
    pub fn with_causes(&self) -> String {
        let mut message = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        message
    }
}

/// Something that the physical GPU reported. Channel numbers inside faults and errors are host numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuEvent {
    /// Work on an engine asked for a notification.
    NonStall(Engine),
    /// A channel was stopped by an MMU fault.
    Fault(MmuFault),
    /// A channel was stopped by the host unit.
    HostError(HostError),
    /// A channel was stopped by the graphics engine.
    GraphicsError(GraphicsError),
    /// A channel was stopped by the GPU's own manager.
    ChannelError(ChannelError),
    /// A preemption that was started is complete.
    Preempted(HostChannel),
    /// The device is gone.
    Lost,
}

impl GpuEvent {
    /// The channel that it is about, if it is about one.
    pub fn channel(&self) -> Option<HostChannel> {
        match self {
            Self::Fault(fault) => fault.channel.map(HostChannel),
            Self::HostError(error) => Some(HostChannel(error.channel)),
            Self::GraphicsError(error) => Some(HostChannel(error.channel)),
            Self::ChannelError(error) => Some(HostChannel(error.channel)),
            Self::Preempted(channel) => Some(*channel),
            Self::NonStall(_) | Self::Lost => None,
        }
    }
}

/// How far VRAM is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrub {
    /// It is.
    Done,
    /// It was before: nobody has touched it.
    Untouched,
    /// The GPU is at it.
    Pending,
    /// The GPU has done its part, and the rest goes on at the next call.
    More,
}

/// How far memory is taken from whoever had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Nobody has any of it.
    Done,
    /// It goes on elsewhere: ask again a little later.
    Waits,
    /// A process still has it, through a file or a mapping that cannot be taken away.
    Held,
}

/// VRAM of the host's own, for channels of the host's own: no tenant's memory.
pub trait OwnMemory {
    /// Takes `size` zeroed bytes, a power of two, at a multiple of it; for good.
    ///
    /// # Errors
    /// There is not so much.
    fn take(&mut self, size: u64) -> Result<HostVram, GpuError>;

    /// Writes what engines read.
    ///
    /// # Errors
    /// It is not the host's own memory.
    fn write(&mut self, at: HostVram, data: &[u8]) -> Result<(), GpuError>;

    /// Reads what engines wrote.
    ///
    /// # Errors
    /// It is not the host's own memory.
    fn read(&mut self, at: HostVram, data: &mut [u8]) -> Result<(), GpuError>;
}

/// The granules that end in `[start, start + size)`: whoever goes through memory piece by piece is done with
/// them then. The last one ends with the memory, at `limit`.
pub fn granules_that_end_in(
    start: u64,
    size: u64,
    granule: u64,
    limit: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let granule = granule.max(1);
    let (end, first) = (start.saturating_add(size).min(limit), start / granule);
    (first..end.div_ceil(granule)).filter_map(move |index| {
        let from = index.saturating_mul(granule);
        let to = from.saturating_add(granule).min(limit);
        (to <= end).then(|| (from, to.saturating_sub(from)))
    })
}

/// The physical GPU. One thread owns it; no method waits for guests' work.
pub trait GpuDriver: Send {
    /// What it offers.
    fn info(&self) -> &GpuInfo;

    /// File descriptors that show a range of VRAM, for a tenant's backend to map: the same memory at each
    /// call, until [`GpuDriver::renew_vram`].
    ///
    /// # Errors
    /// The physical GPU cannot share that range.
    fn share_vram(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError>;

    /// Takes tenants' memory from everybody to whom [`GpuDriver::share_vram`] gave it, whomever they gave it
    /// to: when all of a partition is [`Renewal::Done`], neither files nor mappings that somebody kept reach
    /// what the next owner is given. To be asked for a whole partition, from its start to its end, in pieces
    /// of at most [`scrub::SCRUB_PIECE`]; nothing of its tenant may be on the hardware. With
    /// [`Renewal::Held`], ask for the same piece again later, and let nobody have the memory meanwhile.
    ///
    /// # Errors
    /// The range is not tenant memory, or it stays with whoever has it: nobody may get it any more.
    fn renew_vram(&mut self, start: HostVram, size: u64) -> Result<Renewal, GpuError>;

    /// True when a range that was shared may hold what somebody else left there: it has to be scrubbed before
    /// a tenant gets it, whatever was scrubbed before.
    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool {
        // Where memory is the driver's own from the start, it holds what tenants left, and nothing else.
        let _ = (start, size);
        false
    }

    /// Whether VRAM is the memory of the files that [`Self::share_vram`] gives: what is given back to the
    /// host's kernel is zero then.
    fn is_vram_of_files(&self) -> bool {
        false
    }

    /// The least that a turn has to be long for, where others wait: about what the driver's shortest step
    /// takes.
    fn shortest_turn(&self) -> Duration {
        Duration::ZERO
    }

    /// What it costs an engine to go from one VM's channel to another's, about.
    fn switch_time(&self) -> Duration {
        // Not measured: what the simulator takes for a GPU, and too much for turns to be cut.
        Duration::from_micros(150)
    }

    /// Fills a range of VRAM with zeros. Complete when it returns.
    ///
    /// # Errors
    /// The range is not tenant memory, or hardware failed.
    fn scrub_vram(&mut self, start: HostVram, size: u64) -> Result<(), GpuError>;

    /// The same without waiting for anything: with [`Scrub::Pending`], ask again with the same range until it
    /// is done, and let nobody have the memory meanwhile. At most [`scrub::SCRUB_PIECE`] bytes at a time.
    ///
    /// # Errors
    /// As [`GpuDriver::scrub_vram`]; the memory may be written by hardware later then.
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        self.scrub_vram(start, size)?;
        Ok(Scrub::Done)
    }

    /// True when somebody waits for this process to close the GPU once it is gone, as the kernel does with a
    /// card that is taken out.
    fn is_waited_for(&self) -> bool {
        false
    }

    /// True when an engine of the GPU zeroes VRAM.
    fn scrubs_by_engine(&self) -> bool {
        false
    }

    /// True when VRAM is zeroed at once whenever that is asked for: nothing is gained by an engine.
    fn scrubs_at_once(&self) -> bool {
        false
    }

    /// What was zeroed so far, if that is counted.
    fn scrub_report(&self) -> Option<ScrubReport> {
        None
    }

    /// Memory for channels of the host's own, if the driver lends any.
    fn own_memory(&mut self) -> Option<&mut dyn OwnMemory> {
        None
    }

    /// Makes system memory reachable at a bus address.
    ///
    /// # Errors
    /// See [`DmaError`].
    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError>;

    /// Takes system memory away; translations that name it must be gone already.
    ///
    /// # Errors
    /// See [`DmaError`].
    fn dma_unmap(&mut self, iova: Iova, size: u64) -> Result<(), GpuError>;

    /// The same for as long as the budget lasts; with anything but [`Progress::Done`], ask again with the
    /// same range.
    ///
    /// # Errors
    /// See [`DmaError`].
    fn advance_dma_unmap(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.dma_unmap(iova, size)?;
        budget.spend(budget::CALL);
        Ok(Progress::Done)
    }

    /// A new, empty address space.
    ///
    /// # Errors
    /// Out of host memory.
    fn create_space(&mut self) -> Result<SpaceHandle, GpuError>;

    /// Drops an address space; no channel uses it any more.
    ///
    /// # Errors
    /// No such space, or a channel still uses it.
    fn destroy_space(&mut self, space: SpaceHandle) -> Result<(), GpuError>;

    /// The same for as long as the budget lasts; with anything but [`Progress::Done`], ask again, and do
    /// nothing else with it.
    ///
    /// # Errors
    /// As there.
    fn advance_destroy_space(
        &mut self,
        space: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.destroy_space(space)?;
        budget.spend(budget::CALL);
        Ok(Progress::Done)
    }

    /// Unmaps, then maps, for as long as the budget lasts: what is done is taken from `update`, and engines
    /// see it when this returns. The space's tables may take `table_budget` bytes of host memory.
    ///
    /// # Errors
    /// Out of host memory or budget, a run that is invalid, or memory that cannot be mapped
    /// ([`GpuError::Unmappable`]). The run that the error is about is no longer in `update`; whoever wants
    /// the others asks again.
    fn advance_update(
        &mut self,
        space: SpaceHandle,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError>;

    /// [`GpuDriver::advance_update`] to its end, for whoever may wait. Runs that cannot be mapped stay
    /// faults, and the rest is done.
    ///
    /// # Errors
    /// As there: the first one.
    fn update_space(
        &mut self,
        space: SpaceHandle,
        unmap: &[HostRange],
        map: &[HostMapping],
        table_budget: u64,
    ) -> Result<(), GpuError> {
        let mut update = SpaceUpdate::new(unmap, map);
        let mut unmappable = None;
        loop {
            match self.advance_update(space, &mut update, table_budget, &mut Budget::unlimited()) {
                Ok(Progress::Done) => break,
                Ok(Progress::More) => {}
                Ok(Progress::Waits) => std::thread::sleep(scrub::LOOK_AGAIN),
                Err(error @ GpuError::Unmappable(_)) => {
                    unmappable.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        unmappable.map_or(Ok(()), Err)
    }

    /// What an address space holds.
    ///
    /// # Errors
    /// No such space.
    fn space_usage(&self, space: SpaceHandle) -> Result<SpaceUsage, GpuError>;

    /// Turns pages of the space into faults for as long as the budget lasts. When it is done, stale
    /// translations are dropped as well: engines reach nothing through it.
    ///
    /// # Errors
    /// No such space, or hardware failed.
    fn advance_clear(&mut self, space: SpaceHandle, budget: &mut Budget) -> Result<Progress, GpuError>;

    /// [`GpuDriver::advance_clear`] to its end, for whoever may wait.
    ///
    /// # Errors
    /// As there.
    fn clear_space(&mut self, space: SpaceHandle) -> Result<(), GpuError> {
        while self.advance_clear(space, &mut Budget::unlimited())? != Progress::Done {}
        Ok(())
    }

    /// Turns pages of the space that point at system memory into faults for as long as the budget lasts, and
    /// drops stale translations of them. Nothing may be mapped there until it is done.
    ///
    /// # Errors
    /// No such space, or hardware failed.
    fn advance_revoke(
        &mut self,
        space: SpaceHandle,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError>;

    /// [`GpuDriver::advance_revoke`] to its end, for whoever may wait. Returns how many pages there were.
    ///
    /// # Errors
    /// As there.
    fn revoke_system(&mut self, space: SpaceHandle, iova: Iova, size: u64) -> Result<u64, GpuError> {
        let mut revocation = Revocation::new(iova, size);
        while self.advance_revoke(space, &mut revocation, &mut Budget::unlimited())? != Progress::Done {}
        Ok(revocation.pages)
    }

    /// A new channel, disabled and on no runlist.
    ///
    /// # Errors
    /// Out of channels or host memory.
    fn create_channel(&mut self, spec: ChannelSpec) -> Result<HostChannel, GpuError>;

    /// Changes the engines that a disabled channel has contexts for.
    ///
    /// # Errors
    /// No such channel, or out of host memory.
    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError>;

    /// Makes an object of a class on a channel, for GPUs whose manager wants to know. An object of a class
    /// that the channel has is the same one; objects go with their channel.
    ///
    /// # Errors
    /// No such channel, or [`GpuError::NoClass`].
    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError> {
        // Where commands bind classes by themselves (GF100), there is nothing to make.
        let _ = channel;
        Err(GpuError::NoClass { class, engine })
    }

    /// Takes a channel off the hardware for good. Work of it that a preemption did not stop is dropped by
    /// resetting the engine it holds. Nothing is reported of it any more when this returns: the next channel
    /// may have its number.
    ///
    /// # Errors
    /// No such channel, or hardware did not let it go.
    fn destroy_channel(&mut self, channel: HostChannel) -> Result<(), GpuError>;

    /// Sets or clears the start bit.
    ///
    /// # Errors
    /// No such channel.
    fn enable_channel(&mut self, channel: HostChannel, enabled: bool) -> Result<(), GpuError>;

    /// Commits the runlist: the channels that hardware may run, in this order.
    ///
    /// # Errors
    /// No such channel, or hardware did not take it.
    fn commit_runlist(&mut self, channels: &[HostChannel]) -> Result<(), GpuError>;

    /// Starts a preemption; [`GpuEvent::Preempted`] follows.
    ///
    /// # Errors
    /// No such channel.
    fn preempt_channel(&mut self, channel: HostChannel) -> Result<(), GpuError>;

    /// Tells hardware of new work. The guest has stored GP_PUT in its USERD before; hardware takes what it
    /// finds there. `gp_put` is what the guest's doorbell said, and older than that if the doorbell had to
    /// wait.
    ///
    /// # Errors
    /// No such channel.
    fn doorbell(&mut self, channel: HostChannel, gp_put: u32) -> Result<(), GpuError>;

    /// How far hardware has fetched the channel's ring: its GP_GET. The page is the guest's, so this is a
    /// hint for accounting and nothing else.
    ///
    /// # Errors
    /// No such channel.
    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError>;

    /// What each engine runs now: its channel while it is busy (for accounting by sampling).
    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)>;

    /// How long engines have worked so far, for whomever: read right after [`GpuDriver::sample_engines`], and
    /// to be trusted only as far as samples are less than a second apart. Empty where hardware does not tell.
    fn engine_times(&mut self) -> Vec<(Engine, Duration)> {
        Vec::new()
    }

    /// Engines that had to be reset so far, because a channel did not leave them.
    fn engine_resets(&self) -> u64 {
        // A GPU that stops any work at any place needs none.
        0
    }

    /// What it costs the card and the host, if the GPU is a card that this driver programs itself.
    fn card_use(&self) -> Option<CardUse> {
        None
    }

    /// Readable when [`GpuDriver::take_events`] has something.
    fn event_fd(&self) -> BorrowedFd<'_>;

    /// Looks after what was begun and ends by itself; what became of it is an event or shows when it is asked
    /// for again. True when somebody should look again after [`scrub::LOOK_AGAIN`].
    fn advance_pending(&mut self, budget: &mut Budget) -> bool {
        // Where everything that ends tells so, there is nothing to look after.
        let _ = budget;
        false
    }

    /// Moves what happened since the last call into `events`; clears the descriptor.
    fn take_events(&mut self, events: &mut Vec<GpuEvent>);
}

/// The true owner of everything that engines can reach, told by the aggregator's admission code to hardware
/// that can check it (the software GPU). Real hardware has none; shadowing code never sees it.
pub trait OwnershipLedger: Send + Sync {
    /// Labels a VRAM range; `None` is the host's own.
    fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>);
    /// Labels a bus-address range.
    fn own_system(&self, start: Iova, size: u64, owner: Option<TenantId>);
    /// Labels a channel.
    fn own_channel(&self, channel: HostChannel, owner: Option<TenantId>);
    /// Engine accesses of `tenant`'s channels that met memory of somebody else.
    fn foreign_accesses(&self, tenant: TenantId) -> u64;
    /// How long engines worked for `tenant`'s channels, for tests to judge what the host counts. A channel
    /// that still has its engine may be told of a time slice later.
    fn engine_time(&self, tenant: TenantId) -> Vec<(Engine, Duration)> {
        let _ = tenant;
        Vec::new()
    }
    /// Engine accesses of the host's own channels that met a tenant's memory.
    fn foreign_accesses_of_host(&self) -> u64 {
        0
    }
}
