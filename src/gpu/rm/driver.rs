//! The driver as the aggregator sees it: [`GpuDriver`] over one GPU of the NVIDIA driver.

mod left_behind;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::abi::Handle;
use super::channels::{Channels, MAX_CHANNELS};
use super::clearing::Cleaner;
use super::device::{Device, DeviceFacts, Doorbell};
use super::engine_table::EngineTable;
use super::events::Events;
use super::kernel::OpenFiles;
use super::open_error::OpenError;
use super::pinner::Pinner;
use super::space::{Memories, Space};
use super::space_pages::PAGE_SHIFTS;
use super::system::{FIRST_IOVA, SYSTEM_BITS, SystemMemory};
use super::vram::{GRANULE, Vram};
use super::windows::VA_BITS;
use crate::scrub::ScrubReport;
use crate::{
    Budget, ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, OwnMemory, Progress, Renewal, Revocation,
    Scrub, ScrubMode, Scrubber, SpaceHandle, SpaceUpdate, SpaceUsage,
};
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};
use gpuvmk_chip::gh100::userd::USERD_SIZE;
use gpuvmk_chip::{Chip, Engine, EngineSet};
use gpuvmk_host::clock::Clock;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::{CardUse, DmaMapping, SharedMemory};

/// Address spaces at once: what tenants with all channels may have. Nothing of the hardware's stands behind
/// it; each is an object of the NVIDIA driver, with a page directory.
const MAX_SPACES: usize = 2 * MAX_CHANNELS as usize + 1;

/// Host memory for the runs of all spaces: half a million. Each may cost the driver a page table of 4 KiB or
/// more.
const TABLE_MEMORY: u64 = 64 << 20;

/// The threads that do long work, and the clock.
pub(super) struct Helpers {
    /// Clears video memory.
    pub cleaner: Box<dyn Cleaner>,
    /// Holds tenants' memory in place.
    pub pinner: Box<dyn Pinner>,
    /// For preemptions under way.
    pub clock: Arc<dyn Clock>,
    /// Readable when the owner should look.
    pub wake: Arc<OwnedFd>,
    /// Tells whether windows are still somebody's.
    pub windows: Box<dyn OpenFiles>,
}

/// A new descriptor to wake the owner with.
pub(super) fn wake() -> std::io::Result<Arc<OwnedFd>> {
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    Ok(Arc::new(rustix::event::eventfd(0, flags)?))
}

/// The RM driver.
pub struct RmDriver {
    info: GpuInfo,
    facts: DeviceFacts,
    // Before the device: what it holds is freed with the client.
    cleaner: Box<dyn Cleaner>,
    events: Events,
    channels: Channels,
    spaces: OrderedMap<SpaceHandle, Space>,
    next_space: u32,
    vram: Vram,
    system: SystemMemory,
    doorbell: Arc<Doorbell>,
    preempted: Vec<HostChannel>,
    clock: Arc<dyn Clock>,
    wake: Arc<OwnedFd>,
    device: Device,
}

impl std::fmt::Debug for RmDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RmDriver").field("info", &self.info).finish_non_exhaustive()
    }
}

impl RmDriver {
    /// Drives a GPU that was found fit.
    pub(super) fn with_helpers(
        mut device: Device,
        doorbell: Arc<Doorbell>,
        helpers: Helpers,
        facts: DeviceFacts,
        (table, chip): (EngineTable, Chip),
        vram: u64,
    ) -> Result<Self, OpenError> {
        let gpu = |error: GpuError| OpenError::Setup(Box::new(error));
        let Helpers { cleaner, pinner, clock, wake, windows } = helpers;
        let events = Events::new(&mut device, &table, &wake).map_err(gpu)?;
        let info = GpuInfo {
            chip,
            classes: chip.classes.for_tenants(),
            tenant_vram: HostVram(0),
            tenant_vram_size: vram,
            partition_granule: GRANULE,
            channels: MAX_CHANNELS,
            engines: EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2,
            userd_granule: USERD_SIZE,
            slow_vram_reads: true,
            texture_clusters: Some(facts.texture_clusters).filter(|clusters| clusters.total() > 0),
            va_bits: VA_BITS,
            page_shifts: PAGE_SHIFTS.to_vec(),
            system_bits: SYSTEM_BITS,
            first_iova: Iova(FIRST_IOVA),
            spaces: u32::try_from(MAX_SPACES).unwrap_or(u32::MAX),
            table_memory: TABLE_MEMORY,
            scrub: ScrubMode::Engine,
            // A disable and an enable, of 0.2 ms each.
            switch_time: Duration::from_micros(400),
            // A call takes 17 to 58 us, and the shortest update of page tables two.
            shortest_turn: Duration::from_micros(100),
            // The NVIDIA driver has the card.
            close_when_lost: false,
        };
        Ok(Self {
            info,
            facts,
            cleaner,
            events,
            channels: Channels::new(table, chip),
            spaces: OrderedMap::new(),
            next_space: 0,
            vram: Vram::new(vram, windows),
            system: SystemMemory::new(pinner),
            doorbell,
            preempted: Vec::new(),
            clock,
            wake,
            device,
        })
    }

    /// Facts about the GPU.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn space(&mut self, handle: SpaceHandle) -> Result<&mut Space, GpuError> {
        self.spaces.get_mut(&handle).ok_or_else(|| no_such_space(handle))
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// An address space's own object.
    pub(super) fn space_object(&self, space: SpaceHandle) -> Option<Handle> {
        self.spaces.get(&space).map(|space| space.handle)
    }

    #[cfg(test)]
    pub(super) fn system(&self) -> &SystemMemory {
        &self.system
    }
}

fn no_such_space(handle: SpaceHandle) -> GpuError {
    GpuError::NoSuch { what: "address space", id: handle.0.into() }
}

impl GpuDriver for RmDriver {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn share_vram(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        let Self { device, vram, system, spaces, channels, .. } = self;
        let in_use = |start, size| {
            channels.uses_vram(start, size) || spaces.values().any(|space| space.uses_vram(start, size))
        };
        Ok(vec![vram.share(device, system, start, size, in_use)?])
    }

    fn renew_vram(&mut self, start: HostVram, size: u64) -> Result<Renewal, GpuError> {
        let Self { device, vram, system, spaces, channels, .. } = self;
        let in_use = |start, size| {
            channels.uses_vram(start, size) || spaces.values().any(|space| space.uses_vram(start, size))
        };
        vram.renew(device, system, start, size, in_use)
    }

    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError> {
        Ok(self.system.map(mapping)?)
    }

    fn advance_dma_unmap(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        if self.system.is_mapped(iova, size) {
            return Err(GpuError::Invalid(format!(
                "{size:#x} bytes at bus address {iova} are still mapped in an address space"
            )));
        }
        self.system.advance_unmap(&mut self.device, iova, size, budget)
    }

    fn create_space(&mut self) -> Result<SpaceHandle, GpuError> {
        if self.spaces.len() >= MAX_SPACES {
            return Err(GpuError::Exhausted { what: "address spaces", limit: MAX_SPACES as u64 });
        }
        let space = Space::new(&mut self.device)?;
        let handle = SpaceHandle(self.next_space);
        self.next_space = self.next_space.wrapping_add(1);
        self.spaces.insert(handle, space);
        Ok(handle)
    }

    fn advance_destroy_space(
        &mut self,
        space: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        if self.channels.any_in(space) {
            return Err(GpuError::Invalid(format!("Address space {} still has channels", space.0)));
        }
        let gone = self.spaces.get_mut(&space).ok_or_else(|| no_such_space(space))?;
        if gone.advance_destroy(&mut self.device, budget)? != Progress::Done {
            return Ok(Progress::More);
        }
        self.spaces.remove(&space);
        // A fraction of a millisecond, when there is no work.
        if self.spaces.is_empty() && !self.channels.any() {
            match self.not_freed() {
                Ok(left) if left.is_empty() => {}
                Ok(left) => log::error!("the NVIDIA driver keeps what tenants had: {}", left.join(", ")),
                Err(error) => log::debug!("what the NVIDIA driver keeps cannot be told: {error}"),
            }
        }
        Ok(Progress::Done)
    }

    fn advance_update(
        &mut self,
        space: SpaceHandle,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let Self { device, vram, system, spaces, .. } = self;
        let space = spaces.get_mut(&space).ok_or_else(|| no_such_space(space))?;
        space.advance_update(device, &mut Memories { vram, system }, update, table_budget, budget)
    }

    fn space_usage(&self, space: SpaceHandle) -> Result<SpaceUsage, GpuError> {
        self.spaces.get(&space).map(Space::usage).ok_or_else(|| no_such_space(space))
    }

    fn advance_clear(&mut self, space: SpaceHandle, budget: &mut Budget) -> Result<Progress, GpuError> {
        let Self { device, vram, system, spaces, .. } = self;
        let space = spaces.get_mut(&space).ok_or_else(|| no_such_space(space))?;
        space.advance_clear(device, &mut Memories { vram, system }, budget)
    }

    fn advance_revoke(
        &mut self,
        space: SpaceHandle,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let Self { device, vram, system, spaces, .. } = self;
        let space = spaces.get_mut(&space).ok_or_else(|| no_such_space(space))?;
        space.advance_revoke(device, &mut Memories { vram, system }, revocation, budget)
    }

    fn advance_channel(&mut self, spec: ChannelSpec) -> Result<Option<HostChannel>, GpuError> {
        let space = self.space(spec.space)?.handle;
        let Self { device, vram, system, channels, .. } = self;
        let channel = channels.create(device, &mut Memories { vram, system }, space, &spec)?;
        self.events.watch(self.channels.any());
        Ok(channel)
    }

    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError> {
        self.channels.set_engines(channel, engines)
    }

    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError> {
        self.channels.create_object(&mut self.device, channel, class, engine)
    }

    fn destroy_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.channels.destroy(&mut self.device, channel)?;
        self.preempted.retain(|preempted| *preempted != channel);
        self.events.watch(self.channels.any());
        Ok(())
    }

    fn enable_channel(&mut self, channel: HostChannel, enabled: bool) -> Result<(), GpuError> {
        self.channels.enable(&self.device, &self.doorbell, channel, enabled)
    }

    fn commit_runlist(&mut self, channels: &[HostChannel]) -> Result<(), GpuError> {
        self.channels.commit(&self.device, &self.doorbell, channels)
    }

    fn preempt_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        if self.channels.preempt(&self.device, &self.doorbell, channel, self.clock.now())? {
            self.preempted.push(channel);
        }
        // It fails only when the counter is full, and then a wake-up is pending anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        Ok(())
    }

    fn doorbell(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        // The guest's store to its USERD is what the GPU reads.
        self.channels.ring(&self.doorbell, channel)
    }

    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError> {
        self.channels.progress(&self.vram, channel)
    }

    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)> {
        self.channels.sample(&self.vram)
    }

    fn engine_times(&mut self) -> Vec<(Engine, Duration)> {
        // The NVIDIA driver does not tell.
        Vec::new()
    }

    fn engine_resets(&self) -> u64 {
        // The NVIDIA driver's are not ours.
        0
    }

    fn launches_not_executed(&self) -> Option<u64> {
        None
    }

    fn own_memory(&mut self) -> Option<&mut dyn OwnMemory> {
        // The cleaner is the only channel of our own, and has its memory.
        None
    }

    fn card_use(&self) -> Option<CardUse> {
        None
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    fn advance_pending(&mut self, budget: &mut Budget) -> bool {
        self.system.take_answers(&mut self.device);
        let Self { channels, device, doorbell, clock, .. } = &mut *self;
        let pending = channels.look_at_preemptions(device, doorbell, clock.as_ref(), budget);
        let known = self.preempted.len();
        self.preempted.extend(pending.left);
        if self.preempted.len() > known {
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
        pending.more
    }

    fn take_events(&mut self, events: &mut Vec<GpuEvent>) {
        let mut count = [0; 8];
        // Nothing to read is as good.
        let _ = rustix::io::read(&self.wake, &mut count);
        events.extend(self.preempted.drain(..).map(GpuEvent::Preempted));
        match self.events.take(&self.device) {
            Ok(engines) => events.extend(engines.into_iter().map(GpuEvent::NonStall)),
            Err(GpuError::Lost) => events.push(GpuEvent::Lost),
            Err(error) => log::warn!("events of the GPU cannot be read: {error}"),
        }
        events.extend(self.channels.errors().into_iter().map(GpuEvent::Stopped));
    }
}

impl Scrubber for RmDriver {
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        let Self { device, vram, system, cleaner, .. } = self;
        vram.advance_scrub(device, system, cleaner.as_mut(), start, size)
    }

    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool {
        self.vram.is_dirty(start, size)
    }

    fn scrub_report(&self) -> Option<ScrubReport> {
        None
    }
}
