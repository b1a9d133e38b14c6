//! The physical GPU that the judge stands behind: it does no work, and keeps what it is told.

use super::books::{MIB, State};
use super::judge::Judge;
use gpuvmk::addr::{HostChannel, HostVram, Iova};
use gpuvmk::chip::{Chip, Engine, EngineSet};
use gpuvmk::gpu::budget::CALL;
use gpuvmk::gpu::scrub::ScrubReport;
use gpuvmk::gpu::space_map::{SpaceMap, SpaceShape};
use gpuvmk::gpu::{
    Budget, ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, OwnMemory, Progress, Renewal, Revocation,
    Scrub, ScrubMode, Scrubber, SpaceHandle, SpaceUpdate, SpaceUsage,
};
use gpuvmk::pci::{CardUse, DmaMapping, SharedMemory};
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::MutexGuard;
use std::time::Duration;

/// What a tenant usually asks for.
pub(super) const PARTITION: u64 = 16 * MIB;
const TENANT_VRAM: u64 = 64 * MIB;
const TENANT_VRAM_SIZE: u64 = 128 * MIB;
const CHANNELS: u16 = 16;
const TABLE_MEMORY: u64 = 64 << 10;

/// The driver.
#[derive(Debug)]
pub(super) struct JudgeGpu {
    info: GpuInfo,
    shape: SpaceShape,
    judge: Judge,
    wake: OwnedFd,
}

impl JudgeGpu {
    pub(super) fn new(hopper: bool) -> (Self, Judge) {
        let judge = Judge::new(hopper);
        let page_shifts: &[u8] = if hopper { &[12, 16, 21, 29] } else { &[12, 17] };
        let (va_bits, system_bits) = if hopper { (57, 52) } else { (40, 40) };
        let chip = if hopper { Chip::GH100 } else { Chip::GF100 };
        let info = GpuInfo {
            chip,
            classes: chip.classes.for_tenants(),
            tenant_vram: HostVram(TENANT_VRAM),
            tenant_vram_size: TENANT_VRAM_SIZE,
            partition_granule: PARTITION,
            channels: CHANNELS,
            engines: EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1,
            userd_granule: if hopper { 512 } else { 4096 },
            slow_vram_reads: hopper,
            texture_clusters: None,
            va_bits,
            page_shifts: page_shifts.to_vec(),
            system_bits,
            first_iova: Iova(1 << 32),
            spaces: 128,
            table_memory: TABLE_MEMORY,
            scrub: ScrubMode::Processor,
            switch_time: Duration::from_micros(150),
            shortest_turn: Duration::ZERO,
            close_when_lost: false,
        };
        let shape = SpaceShape { va_bits, system_bits, page_shifts, join: hopper };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags).expect("an eventfd");
        (Self { info, shape, judge: judge.clone(), wake }, judge)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.judge.state()
    }
}

impl GpuDriver for JudgeGpu {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn share_vram(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        let end = start.0 + size;
        assert!(start.0 >= TENANT_VRAM && end <= TENANT_VRAM + TENANT_VRAM_SIZE, "the host's VRAM is shared");
        let fd = rustix::fs::memfd_create("vram", MemfdFlags::CLOEXEC).expect("a memory file");
        Ok(vec![SharedMemory { fd, offset: 0, size }])
    }

    fn renew_vram(&mut self, start: HostVram, size: u64) -> Result<Renewal, GpuError> {
        let state = self.state();
        let inside = |userd: HostVram| userd >= start && userd.0 < start.0 + size;
        let used = state.channels.values().any(|spec| inside(spec.userd));
        assert!(!used, "memory is taken from a tenant whose channels use it");
        Ok(Renewal::Done)
    }

    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError> {
        let DmaMapping { iova, size, .. } = mapping;
        let mut state = self.state();
        let end = iova.checked_add(size).filter(|end| *end <= 1 << self.info.system_bits);
        let end = end.expect("bus addresses that the GPU has");
        assert!(iova >= self.info.first_iova.0, "a bus address of the host's own");
        assert_eq!(state.dma.cut(iova, end), 0, "bus addresses are given twice");
        state.dma.0.insert(iova, (size, ()));
        Ok(())
    }

    fn advance_dma_unmap(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let mut state = self.state();
        for space in state.spaces.values() {
            let left = space.pointing_at(iova, size).next();
            assert!(left.is_none(), "memory goes while a page table names it: {left:x?}");
        }
        let covered = state.dma.cut(iova.0, iova.0 + size);
        assert_eq!(covered, size, "what was never mapped is unmapped");
        budget.spend(CALL);
        Ok(Progress::Done)
    }

    fn create_space(&mut self) -> Result<SpaceHandle, GpuError> {
        let shape = self.shape;
        let mut state = self.state();
        state.next_space += 1;
        let handle = SpaceHandle(state.next_space);
        state.spaces.insert(handle, SpaceMap::new(shape));
        Ok(handle)
    }

    fn advance_destroy_space(
        &mut self,
        space: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let mut state = self.state();
        let used = state.channels.values().any(|spec| spec.space == space);
        assert!(!used, "{space:?} goes while a channel uses it");
        state.space(space)?;
        state.spaces.remove(&space);
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
        let mut state = self.state();
        let space = state.space(space)?;
        while !update.is_empty() {
            match update.unmap.pop_front() {
                Some(range) => drop(space.unmap(&range, table_budget)?),
                None => {
                    let mapping = update.map.pop_front();
                    mapping.map_or(Ok(Vec::new()), |mapping| space.insert(&mapping, table_budget))?;
                }
            }
            if budget.spend(1) && !update.is_empty() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn space_usage(&self, space: SpaceHandle) -> Result<SpaceUsage, GpuError> {
        self.state().space(space).map(|space| space.usage())
    }

    fn advance_clear(&mut self, space: SpaceHandle, budget: &mut Budget) -> Result<Progress, GpuError> {
        let mut state = self.state();
        let space = state.space(space)?;
        while !space.clear_some(1).is_empty() {
            if budget.spend(1) {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn advance_revoke(
        &mut self,
        space: SpaceHandle,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let mut state = self.state();
        let space = state.space(space)?;
        while !space.revoke_some(revocation, TABLE_MEMORY, 1, &mut Vec::new()) {
            if budget.spend(1) {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn advance_channel(&mut self, spec: ChannelSpec) -> Result<Option<HostChannel>, GpuError> {
        let mut state = self.state();
        state.space(spec.space)?;
        let free = (1..=CHANNELS).map(HostChannel).find(|number| !state.channels.contains_key(number));
        let channel = free.ok_or(GpuError::Exhausted { what: "channels", limit: CHANNELS.into() })?;
        state.channels.insert(channel, spec);
        Ok(Some(channel))
    }

    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError> {
        let mut state = self.state();
        state.no_channel(channel)?;
        if let Some(spec) = state.channels.get_mut(&channel) {
            spec.engines = engines;
        }
        Ok(())
    }

    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError> {
        self.state().no_channel(channel)?;
        if class == 0xc8b5 { Ok(()) } else { Err(GpuError::NoClass { class, engine }) }
    }

    fn destroy_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        let mut state = self.state();
        state.no_channel(channel)?;
        assert!(!state.runlist.contains(&channel), "{channel:?} goes while it is on the runlist");
        if state.stuck {
            state.failed = true;
            return Err(GpuError::Timeout { what: "an engine reset", millis: 100 });
        }
        state.preempting.retain(|other| *other != channel);
        state.channels.remove(&channel);
        Ok(())
    }

    fn enable_channel(&mut self, channel: HostChannel, _enabled: bool) -> Result<(), GpuError> {
        self.state().no_channel(channel)
    }

    fn commit_runlist(&mut self, channels: &[HostChannel]) -> Result<(), GpuError> {
        let mut state = self.state();
        for channel in channels {
            assert!(state.channels.contains_key(channel), "an absent channel is on the runlist");
        }
        let distinct: BTreeSet<_> = channels.iter().collect();
        assert_eq!(distinct.len(), channels.len(), "a channel is on the runlist twice");
        state.runlist = channels.to_vec();
        Ok(())
    }

    fn preempt_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        let mut state = self.state();
        state.no_channel(channel)?;
        if state.holds {
            state.preempting.push(channel);
        } else {
            state.events.push(GpuEvent::Preempted(channel));
        }
        Ok(())
    }

    fn doorbell(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.state().no_channel(channel)
    }

    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError> {
        self.state().no_channel(channel).map(|()| 0)
    }

    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)> {
        let state = self.state();
        vec![(Engine::Graphics, state.runlist.first().copied()), (Engine::COPY1, None)]
    }

    fn engine_times(&mut self) -> Vec<(Engine, Duration)> {
        Vec::new()
    }

    fn engine_resets(&self) -> u64 {
        0
    }

    fn launches_not_executed(&self) -> Option<u64> {
        None
    }

    fn own_memory(&mut self) -> Option<&mut dyn OwnMemory> {
        None
    }

    fn card_use(&self) -> Option<CardUse> {
        None
    }

    fn advance_pending(&mut self, _budget: &mut Budget) -> bool {
        false
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn take_events(&mut self, events: &mut Vec<GpuEvent>) {
        events.append(&mut self.state().events);
    }
}

impl Scrubber for JudgeGpu {
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        assert!(start.0.is_multiple_of(MIB) && size.is_multiple_of(MIB), "pieces of VRAM are whole MiB here");
        let mut state = self.state();
        for piece in start.0 / MIB..(start.0 + size) / MIB {
            state.vram.entry(piece).or_default().dirty = false;
        }
        Ok(Scrub::Done)
    }

    fn is_vram_dirty(&self, _start: HostVram, _size: u64) -> bool {
        false
    }

    fn scrub_report(&self) -> Option<ScrubReport> {
        None
    }
}
