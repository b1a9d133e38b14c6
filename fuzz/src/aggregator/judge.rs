//! A physical GPU that does no work: it keeps what it is told, and judges it by what the ledger says of
//! owners.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvmk::addr::{GpuVa, HostChannel, HostVram, Iova, TenantId};
use gpuvmk::chip::channel_event::{ChannelStop, FaultUnit, GraphicsError, HostError, MmuFault, StopCause};
use gpuvmk::chip::{AccessKind, Chip, Engine, EngineSet, FaultReason};
use gpuvmk::gpu::budget::CALL;
use gpuvmk::gpu::scrub::ScrubReport;
use gpuvmk::gpu::space_map::{Run, SpaceMap, SpaceShape};
use gpuvmk::gpu::{
    Budget, ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, HostTarget, OwnMemory, OwnershipLedger,
    Progress, Renewal, Revocation, Scrub, ScrubMode, Scrubber, SpaceHandle, SpaceUpdate, SpaceUsage,
};
use gpuvmk::pci::{CardUse, DmaMapping, SharedMemory};
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;

use crate::input::Input;

pub(super) const MIB: u64 = 1 << 20;
/// What a tenant usually asks for.
pub(super) const PARTITION: u64 = 16 * MIB;
const TENANT_VRAM: u64 = 64 * MIB;
const TENANT_VRAM_SIZE: u64 = 128 * MIB;
const CHANNELS: u16 = 16;
const TABLE_MEMORY: u64 = 64 << 10;

/// What one page-sized piece of VRAM is to the judge, by MiB.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    owner: Option<TenantId>,
    /// Somebody had it since it was zeroed last.
    dirty: bool,
}

#[derive(Debug, Default)]
struct State {
    spaces: BTreeMap<SpaceHandle, SpaceMap>,
    next_space: u32,
    channels: BTreeMap<HostChannel, ChannelSpec>,
    owners: BTreeMap<HostChannel, TenantId>,
    runlist: Vec<HostChannel>,
    dma: Ranges<()>,
    system: Ranges<TenantId>,
    vram: BTreeMap<u64, Piece>,
    events: Vec<GpuEvent>,
    /// Channels that are being preempted.
    preempting: Vec<HostChannel>,
    /// Preemptions do not end.
    holds: bool,
    /// Channels are not let go.
    stuck: bool,
    /// Something failed: what it belongs to is withheld for good.
    failed: bool,
}

/// Ranges of bus addresses that do not overlap: first address, size, and what is said of them.
#[derive(Debug)]
struct Ranges<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> Ranges<T> {
    /// What is said of an address, and the end of the range that has it.
    fn at(&self, address: u64) -> Option<(u64, T)> {
        let (first, (size, said)) = self.0.range(..=address).next_back()?;
        let end = first.checked_add(*size)?;
        (address < end).then_some((end, *said))
    }

    /// Takes out whatever is there of a range; how many bytes of it were.
    fn cut(&mut self, start: u64, end: u64) -> u64 {
        let all: Vec<_> = self.0.range(..end).map(|(at, (size, said))| (*at, at + size, *said)).collect();
        let mut covered = 0;
        for (at, last, said) in all.into_iter().filter(|(_, last, _)| start < *last) {
            self.0.remove(&at);
            covered += last.min(end) - at.max(start);
            self.0.extend((at < start).then(|| (at, (start - at, said))));
            self.0.extend((end < last).then(|| (end, (last - end, said))));
        }
        covered
    }
}

/// The judge, shared by driver, ledger and harness.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    state: Arc<Mutex<State>>,
    hopper: bool,
}

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
        let judge = Judge { state: Arc::default(), hopper };
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

impl Judge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hopper(&self) -> bool {
        self.hopper
    }

    /// The GPU reports something, true or not.
    pub(super) fn report(&self, input: &mut Input<'_>) {
        let channel = super::host(u16::from(input.below(20)));
        let stopped = |cause: StopCause| GpuEvent::Stopped(ChannelStop { channel, cause });
        let event = match input.below(16) {
            0 | 1 => GpuEvent::NonStall(input.pick(&[Engine::Graphics, Engine::COPY1, Engine::COPY7])),
            2..=4 => {
                let fault = MmuFault {
                    unit: FaultUnit::Host,
                    address: GpuVa(input.u64()),
                    access: AccessKind::Read,
                    reason: FaultReason::NoChannel,
                };
                if input.below(8) == 7 { GpuEvent::Fault(fault) } else { stopped(fault.into()) }
            }
            5 => stopped(HostError { pbdma: 0, status: 1, method: 0, data: 0 }.into()),
            6 => stopped(GraphicsError { status: 1, subchannel: 0, class: 0, method: 0, data: 0 }.into()),
            7 => stopped(StopCause::Manager(31)),
            15 if input.below(4) == 3 => GpuEvent::Lost,
            _ => GpuEvent::Preempted(channel),
        };
        let mut state = self.state();
        state.failed |= event == GpuEvent::Lost;
        state.events.push(event);
    }

    /// Hardware that does not do what it should.
    pub(super) fn misbehave(&self, input: &mut Input<'_>) {
        let mut state = self.state();
        match input.below(8) {
            0..=2 => state.holds = true,
            3 => state.stuck = true,
            _ => {
                state.holds = false;
                state.stuck = false;
            }
        }
    }

    /// Hardware does what it should from now on.
    pub(super) fn behave(&self) {
        let mut state = self.state();
        state.holds = false;
        state.stuck = false;
    }

    /// No space points at memory of two owners or of none, and each channel's space at its owner's only.
    pub(super) fn check(&self) {
        let state = self.state();
        for (handle, space) in &state.spaces {
            let users: BTreeSet<TenantId> = state
                .channels
                .iter()
                .filter(|(_, spec)| spec.space == *handle)
                .filter_map(|(channel, _)| state.owners.get(channel).copied())
                .collect();
            assert!(users.len() <= 1, "channels of {users:?} share {handle:?}");
            let mut owner = users.first().copied();
            for run in space.runs() {
                let found =
                    state.owner_of(run).unwrap_or_else(|| panic!("{run:x?} is nobody's or of several"));
                assert_eq!(*owner.get_or_insert(found), found, "{run:x?} in a space of somebody else");
            }
        }
        for (channel, spec) in &state.channels {
            let owner = state.owners.get(channel).copied();
            let page = state.vram.get(&(spec.userd.0 / MIB)).and_then(|piece| piece.owner);
            assert_eq!(page, owner, "the USERD of {channel:?} is not its owner's");
        }
    }

    /// Nothing is left of anybody.
    pub(super) fn check_empty(&self) {
        let state = self.state();
        if state.failed {
            return;
        }
        assert!(state.channels.is_empty() && state.runlist.is_empty(), "channels stay: {:?}", state.channels);
        assert!(state.spaces.is_empty(), "address spaces stay: {:?}", state.spaces);
        assert!(state.dma.0.is_empty() && state.system.0.is_empty(), "memory stays mapped: {:?}", state.dma);
        assert!(state.owners.is_empty(), "channels stay somebody's: {:?}", state.owners);
        assert!(state.vram.values().all(|piece| piece.owner.is_none()), "VRAM stays somebody's");
    }
}

impl State {
    /// The one owner of what a run points at.
    fn owner_of(&self, run: &Run) -> Option<TenantId> {
        match run.target {
            HostTarget::Vram(HostVram(start)) => {
                let last = start.checked_add(run.len)?.checked_sub(1)?;
                let mut owners = (start / MIB..=last / MIB).map(|piece| self.vram.get(&piece)?.owner);
                let first = owners.next()??;
                owners.all(|owner| owner == Some(first)).then_some(first)
            }
            HostTarget::System { iova: Iova(start), .. } => {
                // A run may go on from one mapping into the next of the same tenant.
                let end = start.checked_add(run.len)?;
                let (mut at, mut owner) = (start, None);
                while at < end {
                    let ((mapped, ()), (owned, found)) = (self.dma.at(at)?, self.system.at(at)?);
                    if *owner.get_or_insert(found) != found {
                        return None;
                    }
                    at = mapped.min(owned);
                }
                owner
            }
        }
    }

    fn no_channel(&self, channel: HostChannel) -> Result<(), GpuError> {
        if self.channels.contains_key(&channel) {
            return Ok(());
        }
        Err(GpuError::NoSuch { what: "channel", id: channel.0.into() })
    }

    fn space(&mut self, space: SpaceHandle) -> Result<&mut SpaceMap, GpuError> {
        self.spaces.get_mut(&space).ok_or(GpuError::NoSuch { what: "address space", id: space.0.into() })
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

impl OwnershipLedger for Judge {
    fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>) {
        let mut state = self.state();
        for number in start.0 / MIB..(start.0 + size) / MIB {
            let piece = state.vram.entry(number).or_default();
            // A tenant's own memory is the host's while it is zeroed, and then the tenant's again.
            if owner.is_some() && owner != piece.owner {
                assert!(piece.owner.is_none(), "VRAM of somebody is given away");
                assert!(!piece.dirty, "VRAM changes hands and was not zeroed");
                piece.dirty = true;
            }
            piece.owner = owner;
        }
    }

    fn own_system(&self, start: Iova, size: u64, owner: Option<TenantId>) {
        let mut state = self.state();
        state.system.cut(start.0, start.0 + size);
        state.system.0.extend(owner.map(|owner| (start.0, (size, owner))));
    }

    fn own_channel(&self, channel: HostChannel, owner: Option<TenantId>) {
        let mut state = self.state();
        match owner {
            Some(owner) => drop(state.owners.insert(channel, owner)),
            None => drop(state.owners.remove(&channel)),
        }
    }

    fn foreign_accesses(&self, _tenant: TenantId) -> u64 {
        0
    }

    fn engine_time(&self, _tenant: TenantId) -> Vec<(Engine, Duration)> {
        Vec::new()
    }

    fn foreign_accesses_of_host(&self) -> u64 {
        0
    }
}
