//! The seam to the physical GPU.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::{
    Budget, ChannelSpec, GpuError, GpuEvent, GpuInfo, OwnMemory, Progress, Renewal, Revocation, Scrubber,
    SpaceHandle, SpaceUpdate, SpaceUsage,
};
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_pci::{CardUse, DmaMapping, SharedMemory};

/// The physical GPU.
///
/// One thread owns it, and no method waits for guests' work. All addresses and channel numbers are the
/// host's, and the caller has checked them. Long work has an `advance_...` method: it works for as long as
/// its [`Budget`] lasts, and is called again until it answers [`Progress::Done`].
///
/// No method has a default, so a wrapper must decide about each. [`GpuDriverExt`](super::GpuDriverExt) has
/// the long methods for callers that may wait: they return when the work is done.
pub trait GpuDriver: Scrubber + Send {
    /// Properties and capacities of the GPU.
    fn info(&self) -> &GpuInfo;

    /// File descriptors that show a range of VRAM, for a tenant's backend to map: the same memory at each
    /// call, until [`GpuDriver::renew_vram`].
    ///
    /// # Errors
    /// The physical GPU cannot share that range.
    fn share_vram(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError>;

    /// Takes tenants' memory back from every process that has files or mappings of it, by
    /// [`GpuDriver::share_vram`] or from another process.
    ///
    /// The caller asks for a whole partition, from its start to its end, in pieces of at most
    /// [`SCRUB_PIECE`](super::scrub::SCRUB_PIECE). Nothing of the tenant may be on the hardware. When all
    /// pieces are [`Renewal::Done`], the next owner gets memory that no old file or mapping reaches. With
    /// [`Renewal::Held`], ask for the same piece again later; meanwhile the memory must not be given to a
    /// tenant.
    ///
    /// # Errors
    /// The range is not tenant memory, or it cannot be taken back. Then no tenant may ever get it.
    fn renew_vram(&mut self, start: HostVram, size: u64) -> Result<Renewal, GpuError>;

    /// Memory for channels of the host's own; `None`: the driver lends none.
    fn own_memory(&mut self) -> Option<&mut dyn OwnMemory>;

    /// Makes system memory reachable at a bus address.
    ///
    /// # Errors
    /// See [`gpuvmk_pci::DmaError`].
    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError>;

    /// Takes system memory away, for as long as the budget lasts. Translations that name it must be gone
    /// already. With anything but [`Progress::Done`], ask again with the same range.
    ///
    /// # Errors
    /// See [`gpuvmk_pci::DmaError`].
    fn advance_dma_unmap(&mut self, iova: Iova, size: u64, budget: &mut Budget)
    -> Result<Progress, GpuError>;

    /// A new, empty address space.
    ///
    /// # Errors
    /// Out of host memory.
    fn create_space(&mut self) -> Result<SpaceHandle, GpuError>;

    /// Drops an address space that no channel uses any more, for as long as the budget lasts. With anything
    /// but [`Progress::Done`], ask again, and do nothing else with it.
    ///
    /// # Errors
    /// No such space, or a channel still uses it.
    fn advance_destroy_space(
        &mut self,
        space: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError>;

    /// Unmaps, then maps, for as long as the budget lasts: what is done is taken from `update`, and engines
    /// see it when this returns. The space's tables may take `table_budget` bytes of host memory.
    ///
    /// # Errors
    /// Out of host memory or table budget, a run that is invalid, or memory that cannot be mapped
    /// ([`GpuError::Unmappable`]). The failed run is taken from `update`; call again for the others.
    fn advance_update(
        &mut self,
        space: SpaceHandle,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError>;

    /// Pages of an address space, and the host memory of its tables.
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

    /// A new channel, disabled and on no runlist. `None` while another thread makes the memory of its USERD
    /// reachable: ask again after [`LOOK_AGAIN`](super::LOOK_AGAIN) with the same specification, or never.
    ///
    /// # Errors
    /// Out of channels or host memory, or the memory of its USERD cannot be made reachable.
    fn advance_channel(&mut self, spec: ChannelSpec) -> Result<Option<HostChannel>, GpuError>;

    /// Changes the engines that a disabled channel has contexts for.
    ///
    /// # Errors
    /// No such channel, or out of host memory.
    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError>;

    /// Makes an object of a class on a channel, for GPUs whose manager wants to know. An object of a class
    /// that the channel has is the same one; objects go with their channel.
    ///
    /// # Errors
    /// No such channel, or [`GpuError::NoClass`], which is the answer to every class where commands bind
    /// classes by themselves (GF100).
    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError>;

    /// Destroys a channel. Work of it that a preemption did not stop is dropped by resetting the engine it
    /// holds. Nothing is reported of it any more when this returns: the next channel may have its number.
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

    /// Tells hardware of new work. The guest has stored GP_PUT in its USERD before. Hardware takes what it
    /// finds there now, which may be newer than what a doorbell said that had to wait.
    ///
    /// # Errors
    /// No such channel.
    fn doorbell(&mut self, channel: HostChannel) -> Result<(), GpuError>;

    /// How far hardware has fetched the channel's ring: its GP_GET. The page is the guest's, so this is a
    /// hint for accounting and nothing else.
    ///
    /// # Errors
    /// No such channel.
    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError>;

    /// The channel that each engine runs now; `None` while it is idle. For accounting by sampling.
    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)>;

    /// Total busy time of each engine, for all channels together. Read it right after
    /// [`GpuDriver::sample_engines`]. It is exact only if samples are less than a second apart. Empty where
    /// hardware has no such counters.
    fn engine_times(&mut self) -> Vec<(Engine, Duration)>;

    /// Engines that had to be reset so far, because a channel did not leave them. 0 for a GPU that stops any
    /// work at any place.
    fn engine_resets(&self) -> u64;

    /// Launches of shaders so far that ended because a model of hardware does not execute what they need.
    /// `None` for hardware.
    fn launches_not_executed(&self) -> Option<u64>;

    /// Accesses to the card so far; `None` if this driver programs no card by itself.
    fn card_use(&self) -> Option<CardUse>;

    /// Readable when [`GpuDriver::take_events`] has something.
    fn event_fd(&self) -> BorrowedFd<'_>;

    /// Continues work that was begun and ends by itself. Its result is an event, or shows at the next request
    /// for it. True when this must be called again after [`LOOK_AGAIN`](super::LOOK_AGAIN). A driver whose
    /// hardware notifies the end of all work has nothing to poll.
    fn advance_pending(&mut self, budget: &mut Budget) -> bool;

    /// Moves the events since the last call into `events`, and clears the descriptor.
    fn take_events(&mut self, events: &mut Vec<GpuEvent>);
}
