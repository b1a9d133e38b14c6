//! The executor: the engine core as a [`GpuDriver`] for GH100, whose silicon is reached through firmware
//! only.
//!
//! There are no registers and no page tables in memory: address spaces are kept as runs in host memory
//! ([`spaces`]), where the MMU's walker finds them; channels are bound by the core's own controls
//! ([`channels`]); what happens is collected in an [`outbox`]. Everything behind that is the same hardware
//! model as GF100's: FIFO, PBDMAs, TLBs, engines, with GH100's classes.
//!
//! The first bank of VRAM is the executor's own: instance blocks and context images lie there, and no
//! tenant's partition ever covers it.
//!
//! Not handled: shaders and drawing (launches are refused with an error of their channel), several runlists
//! (one holds all channels; engines run concurrently all the same).

mod channels;
mod outbox;
mod spaces;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use self::channels::{Channels, HOST_VRAM, USABLE, USERD_SIZE};
use self::outbox::Outbox;
use self::spaces::{Spaces, directory};
use super::{VRAM_UNIT, bank_size};
use crate::Preemption;
use crate::chip::GH100;
use crate::core::Core;
use crate::events::{driver_number, hardware_number};
use crate::mmu::walker::Walker;
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};
use gpuvmk_chip::{Aperture, Chip, Engine, EngineSet, PhysicalAddress, gh100};
use gpuvmk_gpu::budget::CALL;
use gpuvmk_gpu::scrub::ScrubReport;
use gpuvmk_gpu::space_map::SpaceShape;
use gpuvmk_gpu::{
    Budget, ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, OwnMemory, OwnershipLedger, Progress,
    Renewal, Revocation, Scrub, ScrubMode, Scrubber, SpaceHandle, SpaceUpdate, SpaceUsage,
    granules_that_end_in,
};
use gpuvmk_pci::{CardUse, DmaMapping, SharedMemory};
use gpuvmk_units::backend::{Backend, EngineBackend, FifoState, FlushScope};

/// Bits of a bus address.
const SYSTEM_BITS: u8 = 52;

/// First bus address for tenants' memory; low addresses stay free of it, so that a truncated address never
/// reaches anybody's memory.
const FIRST_IOVA: Iova = Iova(1 << 32);

/// Host memory for the runs of all address spaces together: a million runs.
const TABLE_MEMORY: u64 = 128 << 20;

/// What distinguishes one executor from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// Bytes of VRAM, a multiple of [`VRAM_UNIT`] up to [`super::MAX_VRAM`]. The first bank is not for
    /// tenants.
    pub vram: u64,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self { vram: 256 << 20 }
    }
}

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// Nothing would be left for tenants.
    #[error("{vram:#x} bytes of VRAM leave nothing for tenants: the executor needs {own:#x} for itself")]
    TooSmall {
        /// Bytes wanted.
        vram: u64,
        /// Bytes that it takes.
        own: u64,
    },
    /// VRAM of that size, or the threads, cannot be had.
    #[error("The executor's core with {vram:#x} bytes of VRAM cannot be made")]
    Core {
        /// Bytes wanted.
        vram: u64,
        /// What is wrong.
        #[source]
        source: std::io::Error,
    },
}

/// The executor.
#[derive(Debug)]
pub struct Executor {
    info: GpuInfo,
    core: Core,
    spaces: Arc<Spaces>,
    last_space: SpaceHandle,
    channels: Channels,
    outbox: Arc<Outbox>,
    /// Where the next memory for the host's own channels begins.
    own_next: u64,
    engine_resets: u64,
}

impl Executor {
    /// An executor with zeroed VRAM.
    ///
    /// # Errors
    /// See [`ExecutorError`].
    pub fn new(config: ExecutorConfig) -> Result<Self, ExecutorError> {
        let ExecutorConfig { vram } = config;
        let own = bank_size(vram);
        if vram < own.saturating_add(VRAM_UNIT) || own < HOST_VRAM {
            return Err(ExecutorError::TooSmall { vram, own });
        }
        let no_core = |source| ExecutorError::Core { vram, source };
        let shape = SpaceShape {
            va_bits: u8::try_from(gh100::mmu::VA_BITS).unwrap_or(u8::MAX),
            system_bits: SYSTEM_BITS,
            page_shifts: GH100.page_shifts,
            join: true,
        };
        let spaces = Arc::new(Spaces::new(shape));
        let walker: Arc<dyn Walker> = Arc::clone(&spaces) as Arc<dyn Walker>;
        let core = Core::of(&GH100, walker, vram).map_err(no_core)?;
        let outbox = Arc::new(Outbox::new().map_err(no_core)?);
        core.connect_events(Arc::clone(&outbox) as _);
        let engines = GH100.engines.iter().fold(EngineSet::empty(), |set, engine| set | (*engine).into());
        core.set_fifo_state(FifoState {
            enabled: true,
            pbdma_mask: u32::MAX,
            ready: engines,
            large_pages_64k: false,
        });
        let info = GpuInfo {
            chip: Chip::Gh100,
            tenant_vram: HostVram(own),
            tenant_vram_size: vram.saturating_sub(own),
            partition_granule: own,
            channels: USABLE,
            engines,
            userd_granule: USERD_SIZE,
            slow_vram_reads: false,
            va_bits: shape.va_bits,
            page_shifts: shape.page_shifts.to_vec(),
            system_bits: shape.system_bits,
            first_iova: FIRST_IOVA,
            spaces: u32::try_from(spaces::MAX_SPACES).unwrap_or(u32::MAX),
            table_memory: TABLE_MEMORY,
            kinds: &gh100::KINDS,
            scrub: ScrubMode::Files,
            // Not measured: an engine's thread puts one channel's state down and takes another's up.
            switch_time: Duration::from_micros(10),
            shortest_turn: Duration::ZERO,
            close_when_lost: false,
        };
        let channels = Channels::default();
        Ok(Self {
            info,
            core,
            spaces,
            last_space: SpaceHandle(0),
            channels,
            outbox,
            own_next: HOST_VRAM,
            engine_resets: 0,
        })
    }

    /// The same, whose engines let go of work where `preemption` says.
    #[must_use]
    pub fn with_preemption(self, preemption: Preemption) -> Self {
        self.core.set_preemption(preemption);
        self
    }

    /// Resets the engines that a channel which goes does not leave by itself.
    fn free_engines(&mut self, channel: HostChannel) {
        if self.core.preemption() == Preemption::Anywhere {
            return;
        }
        // Nobody else may get the engine between the look at who holds it and the reset.
        self.core.block_runlist(true);
        for engine in GH100.engines {
            let status = self.core.engine_status(*engine);
            if status.busy && status.channel == Some(driver_number(channel)) {
                self.engine_resets = self.engine_resets.saturating_add(1);
                self.core.reset_engines((*engine).into());
            }
        }
        self.core.block_runlist(false);
    }

    /// The ledger of true owners, for the aggregator's admission code to label.
    pub fn ledger(&self) -> Arc<dyn OwnershipLedger> {
        self.core.ledger()
    }

    /// Page directories of which the MMU remembers translations.
    #[cfg(test)]
    fn remembered_directories(&self) -> usize {
        self.core.system().mmu.remembered()
    }

    /// Drops remembered translations of a space; engines use none of them when it returns.
    fn flush(&self, space: SpaceHandle) {
        self.core.flush_tlb(FlushScope { page_directory: directory(space), hub_only: false });
    }

    fn check_own_memory(&self, at: HostVram, size: usize) -> Result<PhysicalAddress, GpuError> {
        let end = HostVram(self.own_next);
        if at.0 < HOST_VRAM || at.checked_add(size as u64).is_none_or(|last| last > end) {
            return Err(GpuError::Invalid(format!("{size:#x} bytes at {at} are not the host's own memory")));
        }
        Ok(PhysicalAddress { aperture: Aperture::Vram, address: at.0 })
    }

    fn check_tenant_memory(&self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let end = self.info.tenant_vram.checked_add(self.info.tenant_vram_size);
        if start >= self.info.tenant_vram && start.checked_add(size) <= end && size > 0 {
            Ok(())
        } else {
            Err(GpuError::Invalid(format!("{size:#x} bytes at {start} are not tenant memory")))
        }
    }
}

impl OwnMemory for Executor {
    fn take(&mut self, size: u64) -> Result<HostVram, GpuError> {
        let start = self.own_next.next_multiple_of(size.max(1));
        let end = start.saturating_add(size);
        if end > self.info.tenant_vram.0 {
            return Err(GpuError::Exhausted { what: "host VRAM", limit: self.info.tenant_vram.0 });
        }
        self.core.system().memory.vram.zero(start, size)?;
        self.own_next = end;
        Ok(HostVram(start))
    }

    fn write(&mut self, at: HostVram, data: &[u8]) -> Result<(), GpuError> {
        let target = self.check_own_memory(at, data.len())?;
        self.core.write_memory(target, data).map_err(|missed| GpuError::Invalid(missed.to_string()))
    }

    fn read(&mut self, at: HostVram, data: &mut [u8]) -> Result<(), GpuError> {
        let target = self.check_own_memory(at, data.len())?;
        self.core.read_memory(target, data).map_err(|missed| GpuError::Invalid(missed.to_string()))
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
        // Most spaces have nothing of it: no translation of theirs can name it.
        if progress == Progress::Done && revocation.pages > 0 {
            self.flush(space);
        }
        Ok(progress)
    }

    fn create_channel(&mut self, spec: ChannelSpec) -> Result<HostChannel, GpuError> {
        self.spaces.check(spec.space)?;
        self.channels.create(&self.core, &spec)
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
        let sample = |engine: &Engine| {
            let status = self.core.engine_status(*engine);
            (*engine, status.channel.filter(|_| status.busy).map(hardware_number))
        };
        GH100.engines.iter().map(sample).collect()
    }

    fn engine_times(&mut self) -> Vec<(Engine, Duration)> {
        GH100.engines.iter().map(|engine| (*engine, self.core.engine_busy_time(*engine))).collect()
    }

    fn engine_resets(&self) -> u64 {
        self.engine_resets
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

impl Scrubber for Executor {
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        self.check_tenant_memory(start, size)?;
        self.core.system().memory.vram.zero(start.0, size)?;
        Ok(Scrub::Done)
    }

    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool {
        // It holds what tenants left, and nothing else.
        let _ = (start, size);
        false
    }

    fn scrub_report(&self) -> Option<ScrubReport> {
        None
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "tests pick words apart")]
mod tests;
