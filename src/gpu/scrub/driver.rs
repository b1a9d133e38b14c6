//! The wrapped driver: what it does as it is, and where our own channel and the pieces under way matter.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::channel::Channel;
use super::{EngineScrub, ScrubReport};
use crate::{
    Budget, ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, OwnMemory, Progress, Renewal, Revocation,
    Scrub, ScrubMode, Scrubber, SpaceHandle, SpaceUpdate, SpaceUsage,
};
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_pci::{CardUse, DmaMapping, SharedMemory};

impl GpuDriver for EngineScrub {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn share_vram(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        self.check_reach(start, size)?;
        // A tenant of memory that is still being zeroed would lose its writes: the memory is taken from the
        // engine.
        let Self { inner, channel, jobs, .. } = self;
        if let Channel::Ready(rig) = channel {
            for job in jobs.iter().filter(|job| job.overlaps(start, size)) {
                log::warn!("{size:#x} bytes at {start} are given out while the copy engine zeroes a part");
                rig.hide(inner.as_mut(), job)?;
            }
            jobs.retain(|job| !job.overlaps(start, size));
        }
        self.forget_returns(start, size)?;
        self.by_hand.forget(start, size);
        self.inner.share_vram(start, size)
    }

    fn renew_vram(&mut self, start: HostVram, size: u64) -> Result<Renewal, GpuError> {
        self.check_reach(start, size)?;
        // Our own descriptors must be closed too.
        self.shown = None;
        self.forget_returns(start, size)?;
        self.inner.renew_vram(start, size)
    }

    fn own_memory(&mut self) -> Option<&mut dyn OwnMemory> {
        self.inner.own_memory()
    }

    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError> {
        self.inner.dma_map(mapping)
    }

    fn advance_dma_unmap(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.inner.advance_dma_unmap(iova, size, budget)
    }

    fn create_space(&mut self) -> Result<SpaceHandle, GpuError> {
        self.inner.create_space()
    }

    fn advance_destroy_space(
        &mut self,
        space: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.inner.advance_destroy_space(space, budget)
    }

    fn advance_update(
        &mut self,
        space: SpaceHandle,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.inner.advance_update(space, update, table_budget, budget)
    }

    fn space_usage(&self, space: SpaceHandle) -> Result<SpaceUsage, GpuError> {
        self.inner.space_usage(space)
    }

    fn advance_clear(&mut self, space: SpaceHandle, budget: &mut Budget) -> Result<Progress, GpuError> {
        self.inner.advance_clear(space, budget)
    }

    fn advance_revoke(
        &mut self,
        space: SpaceHandle,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.inner.advance_revoke(space, revocation, budget)
    }

    fn advance_channel(&mut self, spec: ChannelSpec) -> Result<Option<HostChannel>, GpuError> {
        self.inner.advance_channel(spec)
    }

    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError> {
        self.inner.set_channel_engines(channel, engines)
    }

    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError> {
        self.inner.create_object(channel, class, engine)
    }

    fn destroy_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.listed.retain(|listed| *listed != channel);
        self.inner.destroy_channel(channel)
    }

    fn enable_channel(&mut self, channel: HostChannel, enabled: bool) -> Result<(), GpuError> {
        self.inner.enable_channel(channel, enabled)
    }

    fn commit_runlist(&mut self, channels: &[HostChannel]) -> Result<(), GpuError> {
        self.listed = channels.to_vec();
        self.relist()
    }

    fn preempt_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.inner.preempt_channel(channel)
    }

    fn doorbell(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.inner.doorbell(channel)
    }

    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError> {
        self.inner.channel_progress(channel)
    }

    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)> {
        self.inner.sample_engines()
    }

    fn engine_times(&mut self) -> Vec<(Engine, Duration)> {
        self.inner.engine_times()
    }

    fn engine_resets(&self) -> u64 {
        self.inner.engine_resets()
    }

    fn launches_not_executed(&self) -> Option<u64> {
        self.inner.launches_not_executed()
    }

    fn card_use(&self) -> Option<CardUse> {
        self.inner.card_use()
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.event_fd()
    }

    fn advance_pending(&mut self, budget: &mut Budget) -> bool {
        self.close_files();
        self.inner.advance_pending(budget)
    }

    fn take_events(&mut self, events: &mut Vec<GpuEvent>) {
        let mut index = events.len();
        self.inner.take_events(events);
        while let Some(event) = events.get(index).copied() {
            if self.take_own(&event) {
                events.remove(index);
            } else {
                index = index.saturating_add(1);
            }
        }
    }
}

impl Scrubber for EngineScrub {
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        if self.info.scrub == ScrubMode::Engine {
            return self.by_its_engine(start, size);
        }
        if let Some(given) = self.follow_return(start, size) {
            return given;
        }
        if self.by_hand.has(start, size) {
            return self.by_processor(start, size);
        }
        let known = self.jobs.iter().enumerate().find(|(_, job)| job.start == start && job.size == size);
        match known.map(|(index, job)| (index, *job)) {
            Some((index, job)) => self.follow(index, job),
            None => self.begin(start, size),
        }
    }

    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool {
        self.inner.is_vram_dirty(start, size)
    }

    fn scrub_report(&self) -> Option<ScrubReport> {
        let engine = matches!(self.channel, Channel::Ready(_)) || self.info.scrub == ScrubMode::Engine;
        Some(self.account.report(if engine { "copy engine" } else { "processor" }))
    }
}
