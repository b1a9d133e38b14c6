//! The executor as the aggregator's GPU.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::Executor;
use super::spaces::directory;
use crate::Preemption;
use crate::chip::GH100;
use crate::events::{driver_number, hardware_number};
use gpuvmk_backend::{Backend, EngineBackend, FlushScope};
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::budget::CALL;
use gpuvmk_gpu::{
    Budget, ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, OwnMemory, Progress, Renewal, Revocation,
    SpaceHandle, SpaceUpdate, SpaceUsage, granules_that_end_in,
};
use gpuvmk_pci::{CardUse, DmaMapping, SharedMemory};

impl Executor {
    /// Resets the engines that a channel which goes does not leave by itself.
    fn free_engines(&mut self, channel: HostChannel) {
        if self.core.preemption() == Preemption::Anywhere {
            return;
        }
        // Blocked so that no other channel gets the engine between the check of its owner and the reset.
        self.core.block_runlist(true);
        for engine in GH100.engines().engines() {
            let status = self.core.engine_status(engine);
            if status.busy && status.channel == Some(driver_number(channel)) {
                self.engine_resets = self.engine_resets.saturating_add(1);
                self.core.reset_engines(engine.into());
            }
        }
        self.core.block_runlist(false);
    }

    /// Drops remembered translations of a space; engines use none of them when it returns.
    fn flush(&self, space: SpaceHandle) {
        self.core.flush_tlb(FlushScope { page_directory: directory(space), hub_only: false });
    }
}

impl GpuDriver for Executor {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn share_vram(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        self.check_tenant_memory(start, size)?;
        Ok(self.core.share_vram(start.0, size)?)
    }

    fn renew_vram(&mut self, start: HostVram, size: u64) -> Result<Renewal, GpuError> {
        self.check_tenant_memory(start, size)?;
        let (bank, limit) = (self.info.partition_granule, self.core.vram_size());
        for (start, size) in granules_that_end_in(start.0, size, bank, limit) {
            match self.core.renew_vram(start, size) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(Renewal::Waits),
                renewed => renewed?,
            }
        }
        Ok(Renewal::Done)
    }

    fn own_memory(&mut self) -> Option<&mut dyn OwnMemory> {
        Some(self)
    }

    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError> {
        Ok(self.core.dma_map(mapping)?)
    }

    fn advance_dma_unmap(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.core.dma_unmap(iova.0, size)?;
        budget.spend(CALL);
        Ok(Progress::Done)
    }

    fn create_space(&mut self) -> Result<SpaceHandle, GpuError> {
        self.last_space = self.spaces.create(self.last_space)?;
        Ok(self.last_space)
    }

    fn advance_destroy_space(
        &mut self,
        space: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        if self.channels.any_in(space) {
            return Err(GpuError::Invalid(format!("Address space {} still has channels", space.0)));
        }
        self.spaces.destroy(space)?;
        self.core.system().mmu.forget(directory(space));
        budget.spend(CALL);
        Ok(Progress::Done)
    }

    fn advance_update(
        &mut self,
        space: SpaceHandle,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let updated = self.spaces.advance_update(space, update, table_budget, budget);
        // What was done before an error is visible to engines too. Whoever asked hears of the end only.
        if !matches!(updated, Ok(Progress::More)) {
            self.flush(space);
        }
        updated
    }

    fn space_usage(&self, space: SpaceHandle) -> Result<SpaceUsage, GpuError> {
        self.spaces.usage(space)
    }

    fn advance_clear(&mut self, space: SpaceHandle, budget: &mut Budget) -> Result<Progress, GpuError> {
        let progress = self.spaces.advance_clear(space, budget)?;
        if progress == Progress::Done {
            self.flush(space);
        }
        Ok(progress)
    }

    fn advance_revoke(
        &mut self,
        space: SpaceHandle,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let progress = self.spaces.advance_revoke(space, revocation, budget)?;
        // Most spaces map nothing of it, and then no translation can name it.
        if progress == Progress::Done && revocation.pages > 0 {
            self.flush(space);
        }
        Ok(progress)
    }

    fn advance_channel(&mut self, spec: ChannelSpec) -> Result<Option<HostChannel>, GpuError> {
        self.spaces.check(spec.space)?;
        self.channels.create(&self.core, &spec).map(Some)
    }

    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError> {
        self.channels.set_engines(&self.core, channel, engines)
    }

    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError> {
        self.channels.create_object(channel, class, engine)
    }

    fn destroy_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.enable_channel(channel, false)?;
        self.free_engines(channel);
        self.channels.destroy(&self.core, channel)?;
        self.outbox.forget(channel);
        Ok(())
    }

    fn enable_channel(&mut self, channel: HostChannel, enabled: bool) -> Result<(), GpuError> {
        self.channels.enable(&self.core, channel, enabled)
    }

    fn commit_runlist(&mut self, channels: &[HostChannel]) -> Result<(), GpuError> {
        self.channels.commit_runlist(&self.core, channels)
    }

    fn preempt_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.channels.preempt(&self.core, channel)
    }

    fn doorbell(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.channels.doorbell(&self.core, channel)
    }

    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError> {
        self.channels.progress(&self.core, channel)
    }

    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)> {
        let sample = |engine: Engine| {
            let status = self.core.engine_status(engine);
            (engine, status.channel.filter(|_| status.busy).map(hardware_number))
        };
        GH100.engines().engines().map(sample).collect()
    }

    fn engine_times(&mut self) -> Vec<(Engine, Duration)> {
        GH100.engines().engines().map(|engine| (engine, self.core.engine_busy_time(engine))).collect()
    }

    fn engine_resets(&self) -> u64 {
        self.engine_resets
    }

    fn launches_not_executed(&self) -> Option<u64> {
        Some(self.core.not_executed())
    }

    fn card_use(&self) -> Option<CardUse> {
        None
    }

    fn advance_pending(&mut self, budget: &mut Budget) -> bool {
        // Everything that ends tells so.
        let _ = budget;
        false
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.outbox.fd()
    }

    fn take_events(&mut self, events: &mut Vec<GpuEvent>) {
        self.outbox.take(events);
    }
}
