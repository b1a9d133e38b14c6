//! A physical GPU that only records its calls: for tests of everything above it.

mod state;

pub use state::{Fake, MIB, State};

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;

use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};
use gpuvmk_chip::{Chip, Engine, EngineSet, TextureClusters};
use gpuvmk_gpu::budget::CALL;
use gpuvmk_gpu::scrub::ScrubReport;
use gpuvmk_gpu::{
    Budget, ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, HostMapping, HostRange, HostTarget,
    OwnMemory, Progress, Renewal, Revocation, Scrub, ScrubMode, Scrubber, SpaceHandle, SpaceUpdate,
    SpaceUsage,
};
use gpuvmk_pci::{CardUse, DmaError, DmaMapping, SharedMemory};

/// Classes that the fake GH100 has.
pub const CLASS_COMPUTE: u32 = 0xcbc0;
pub const CLASS_COPY: u32 = 0xc8b5;

/// The driver of the fake GPU.
#[derive(Debug)]
pub struct FakeGpu {
    info: GpuInfo,
    fake: Fake,
}

impl FakeGpu {
    /// A GH100: 57 address bits, four page sizes, small USERDs, objects.
    pub fn hopper() -> (Self, Fake) {
        let (gpu, fake) = Self::new();
        let info = GpuInfo {
            chip: Chip::GH100,
            classes: Chip::GH100.classes.for_tenants(),
            engines: EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2,
            userd_granule: 512,
            slow_vram_reads: true,
            texture_clusters: Some(TextureClusters::of(&[9, 9, 8])),
            va_bits: 57,
            page_shifts: vec![12, 16, 21, 29],
            system_bits: 52,
            ..gpu.info
        };
        (Self { info, ..gpu }, fake)
    }

    /// 256 MiB for tenants from 64 MiB on, 16 channels.
    pub fn new() -> (Self, Fake) {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fake = Fake {
            state: Arc::new(Mutex::new(State { yields: true, ..State::default() })),
            wake: Arc::new(rustix::event::eventfd(0, flags).unwrap()),
        };
        let info = GpuInfo {
            chip: Chip::GF100,
            classes: Chip::GF100.classes.for_tenants(),
            tenant_vram: HostVram(64 * MIB),
            tenant_vram_size: 256 * MIB,
            partition_granule: 16 * MIB,
            channels: 16,
            engines: EngineSet::all(),
            userd_granule: 4096,
            slow_vram_reads: false,
            texture_clusters: None,
            va_bits: 40,
            page_shifts: vec![12, 17],
            system_bits: 40,
            first_iova: Iova(MIB),
            spaces: 33,
            table_memory: 256 * 1024,
            scrub: ScrubMode::Processor,
            switch_time: Duration::from_micros(150),
            shortest_turn: Duration::ZERO,
            close_when_lost: false,
        };
        (Self { info, fake: fake.clone() }, fake)
    }

    /// A card: its kernel waits until a lost one is closed.
    pub fn card() -> (Self, Fake) {
        let (gpu, fake) = Self::new();
        (Self { info: GpuInfo { close_when_lost: true, ..gpu.info }, ..gpu }, fake)
    }

    fn apply(
        &self,
        space: SpaceHandle,
        unmap: &[HostRange],
        map: &[HostMapping],
        table_budget: u64,
    ) -> Result<(), GpuError> {
        let mut state = self.fake.state();
        let pages = state.spaces.get_mut(&space).ok_or(no_space(space))?;
        for run in unmap {
            let end = run.va.0 + (u64::from(run.pages) << run.page_shift);
            pages.retain(|(shift, va), _| *shift != run.page_shift || *va < run.va.0 || *va >= end);
        }
        for run in map {
            let tables = run.va.0 >> 27..=(run.va.0 + (u64::from(run.pages) << run.page_shift) - 1) >> 27;
            let before = Self::usage(pages).table_bytes;
            let new = tables
                .filter(|table| {
                    pages
                        .range((run.page_shift, table << 27)..(run.page_shift, (table + 1) << 27))
                        .next()
                        .is_none()
                })
                .count() as u64;
            if before + new * 4096 > table_budget {
                return Err(GpuError::Exhausted { what: "page-table memory", limit: table_budget });
            }
            for i in 0..u64::from(run.pages) {
                let into = i << run.page_shift;
                let target = match run.target {
                    HostTarget::Vram(v) => HostTarget::Vram(HostVram(v.0 + into)),
                    HostTarget::System { iova, coherent } => {
                        HostTarget::System { iova: Iova(iova.0 + into), coherent }
                    }
                };
                pages.insert((run.page_shift, run.va.0 + into), target);
            }
        }
        Ok(())
    }

    fn usage(space: &BTreeMap<(u8, u64), HostTarget>) -> SpaceUsage {
        let tables: std::collections::BTreeSet<_> = space.keys().map(|(_, va)| va >> 27).collect();
        SpaceUsage { table_bytes: 4096 + tables.len() as u64 * 4096, pages: space.len() as u64 }
    }
}

fn no_space(space: SpaceHandle) -> GpuError {
    GpuError::NoSuch { what: "space", id: space.0.into() }
}

fn no_channel(channel: HostChannel) -> GpuError {
    GpuError::NoSuch { what: "channel", id: channel.0.into() }
}

impl GpuDriver for FakeGpu {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn share_vram(&mut self, _start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        let fd = rustix::fs::memfd_create("fake-vram", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        Ok(vec![SharedMemory { fd, offset: 0, size }])
    }

    fn renew_vram(&mut self, start: HostVram, size: u64) -> Result<Renewal, GpuError> {
        let mut state = self.fake.state();
        if state.held {
            return Ok(Renewal::Held);
        }
        state.renewed.push((start, size));
        Ok(Renewal::Done)
    }

    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError> {
        let mut state = self.fake.state();
        let end = mapping.iova + mapping.size;
        if state.dma.iter().any(|(iova, size)| mapping.iova < iova + size && *iova < end) {
            return Err(DmaError::Overlap { iova: mapping.iova, size: mapping.size }.into());
        }
        state.dma.insert(mapping.iova, mapping.size);
        Ok(())
    }

    fn advance_dma_unmap(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let mut state = self.fake.state();
        let range = iova.0..iova.0 + size;
        for space in state.spaces.values() {
            for target in space.values() {
                if let HostTarget::System { iova, .. } = target {
                    assert!(!range.contains(&iova.0), "memory is unmapped while {iova} is in a page table");
                }
            }
        }
        let inside: Vec<_> = state.dma.iter().map(|(at, bytes)| (*at, at + bytes)).collect();
        let mut covered = 0;
        for (at, end) in inside.into_iter().filter(|(at, end)| *at < range.end && range.start < *end) {
            state.dma.remove(&at);
            covered += end.min(range.end) - at.max(range.start);
            state.dma.extend((at < range.start).then(|| (at, range.start - at)));
            state.dma.extend((range.end < end).then(|| (range.end, end - range.end)));
        }
        assert_eq!(covered, size, "what was never mapped is unmapped");
        budget.spend(CALL);
        Ok(Progress::Done)
    }

    fn create_space(&mut self) -> Result<SpaceHandle, GpuError> {
        let mut state = self.fake.state();
        state.next_space += 1;
        let handle = SpaceHandle(state.next_space);
        state.spaces.insert(handle, BTreeMap::new());
        Ok(handle)
    }

    fn advance_destroy_space(
        &mut self,
        space: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let mut state = self.fake.state();
        assert!(!state.channels.values().any(|c| c.space == space), "a channel still uses the space");
        state.spaces.remove(&space).ok_or(no_space(space))?;
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
        while !update.is_empty() {
            let unmap: Vec<HostRange> = update.unmap.pop_front().into_iter().collect();
            let map = if unmap.is_empty() { update.map.pop_front() } else { None };
            self.apply(space, &unmap, map.as_slice(), table_budget)?;
            if budget.spend(CALL) && !update.is_empty() {
                return Ok(Progress::More);
            }
        }
        // A space that is not there is refused all the same.
        self.apply(space, &[], &[], table_budget)?;
        Ok(Progress::Done)
    }

    fn space_usage(&self, space: SpaceHandle) -> Result<SpaceUsage, GpuError> {
        self.fake.state().spaces.get(&space).map(Self::usage).ok_or(no_space(space))
    }

    fn advance_clear(&mut self, space: SpaceHandle, budget: &mut Budget) -> Result<Progress, GpuError> {
        let mut state = self.fake.state();
        let pages = state.spaces.get_mut(&space).ok_or(no_space(space))?;
        while pages.pop_first().is_some() {
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
        let Revocation { iova, size, .. } = *revocation;
        let mut state = self.fake.state();
        let pages = state.spaces.get_mut(&space).ok_or(no_space(space))?;
        let before = pages.len();
        pages.retain(|_, target| match target {
            HostTarget::System { iova: at, .. } => at.0 < iova.0 || at.0 >= iova.0 + size,
            HostTarget::Vram(_) => true,
        });
        revocation.pages = (before - pages.len()) as u64;
        budget.spend(1);
        Ok(Progress::Done)
    }

    fn advance_channel(&mut self, spec: ChannelSpec) -> Result<Option<HostChannel>, GpuError> {
        let mut state = self.fake.state();
        if !state.spaces.contains_key(&spec.space) {
            return Err(no_space(spec.space));
        }
        if let Some(left) = state.channel_rounds.checked_sub(1) {
            state.channel_rounds = left;
            return Ok(None);
        }
        let free = (1..=16).map(HostChannel).find(|c| !state.channels.contains_key(c));
        let channel = free.ok_or(GpuError::Exhausted { what: "channels", limit: 16 })?;
        state.channels.insert(channel, spec);
        Ok(Some(channel))
    }

    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError> {
        let mut state = self.fake.state();
        state.channels.get_mut(&channel).map(|c| c.engines = engines).ok_or(no_channel(channel))
    }

    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError> {
        let known =
            matches!((class, engine), (CLASS_COMPUTE, Engine::Graphics) | (CLASS_COPY, Engine::Copy(_)));
        if self.info.chip == Chip::GF100 || !known {
            return Err(GpuError::NoClass { class, engine });
        }
        self.fake.state().objects.push((channel, class, engine));
        Ok(())
    }

    fn destroy_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        let mut state = self.fake.state();
        if state.stuck {
            return Err(GpuError::Timeout { what: "an engine reset", millis: 100 });
        }
        assert!(!state.runlist.contains(&channel), "a channel is destroyed while it is on the runlist");
        if state.preempting.contains(&channel) {
            state.forced.push(channel);
            state.engine_resets += 1;
            state.preempting.retain(|c| *c != channel);
        }
        state.enabled.remove(&channel);
        state.channels.remove(&channel).map(|_| ()).ok_or(no_channel(channel))
    }

    fn enable_channel(&mut self, channel: HostChannel, enabled: bool) -> Result<(), GpuError> {
        let mut state = self.fake.state();
        if !state.channels.contains_key(&channel) {
            return Err(no_channel(channel));
        }
        state.enabled.insert(channel, enabled);
        Ok(())
    }

    fn commit_runlist(&mut self, channels: &[HostChannel]) -> Result<(), GpuError> {
        let mut state = self.fake.state();
        for channel in channels {
            assert!(state.channels.contains_key(channel), "an absent channel is on the runlist");
        }
        state.runlist = channels.to_vec();
        Ok(())
    }

    fn preempt_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        let yields = {
            let mut state = self.fake.state();
            if !state.yields {
                state.preempting.push(channel);
            }
            state.yields
        };
        if yields {
            self.fake.report(GpuEvent::Preempted(channel));
        }
        Ok(())
    }

    fn doorbell(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        let mut state = self.fake.state();
        let gp_put = state.stored.get(&channel).copied().unwrap_or(0);
        state.rung.push((channel, gp_put));
        Ok(())
    }

    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError> {
        let state = self.fake.state();
        if let Some(fetched) = state.fetched {
            return Ok(fetched);
        }
        let rung = state.rung.iter().rev().find(|(c, _)| *c == channel);
        Ok(rung.map_or(0, |(_, put)| *put))
    }

    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)> {
        vec![(Engine::Graphics, self.fake.state().running)]
    }

    fn engine_resets(&self) -> u64 {
        self.fake.state().engine_resets
    }

    fn launches_not_executed(&self) -> Option<u64> {
        None
    }

    fn engine_times(&mut self) -> Vec<(Engine, Duration)> {
        Vec::new()
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
        self.fake.wake.as_fd()
    }

    fn take_events(&mut self, events: &mut Vec<GpuEvent>) {
        let mut counter = [0; 8];
        let _ = rustix::io::read(&self.fake.wake, &mut counter);
        events.append(&mut self.fake.state().events);
    }
}

impl Scrubber for FakeGpu {
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        let mut state = self.fake.state();
        let most = state.scrub_rounds;
        let is_full = state.scrub_places > 0 && state.scrubbing.len() >= state.scrub_places;
        if is_full && !state.scrubbing.contains_key(&start.0) {
            return Ok(Scrub::Pending);
        }
        let round = state.scrubbing.entry(start.0).or_default();
        if *round < most {
            *round += 1;
            return Ok(Scrub::Pending);
        }
        state.scrubbing.remove(&start.0);
        if state.unscrubbable {
            return Err(GpuError::Timeout { what: "zeroing", millis: 1 });
        }
        state.scrubbed.push((start, size));
        if let Some(clock) = &state.zeroing {
            clock.advance(size);
        }
        Ok(Scrub::Done)
    }

    fn is_vram_dirty(&self, _start: HostVram, _size: u64) -> bool {
        self.fake.state().dirty
    }

    fn scrub_report(&self) -> Option<ScrubReport> {
        None
    }
}
