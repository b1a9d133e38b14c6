//! The seam to the physical GPU.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::scrub::{self, ScrubReport};
use super::{
    Budget, ChannelSpec, GpuError, GpuEvent, GpuInfo, HostMapping, HostRange, OwnMemory, Progress, Renewal,
    Revocation, Scrub, SpaceHandle, SpaceUpdate, SpaceUsage, budget,
};
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_pci::{CardUse, DmaMapping, SharedMemory};

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
