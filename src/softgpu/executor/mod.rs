//! The executor: the engine core as a [`GpuDriver`](gpuvmk_gpu::GpuDriver) for GH100, whose silicon is
//! reached through firmware only.
//!
//! There are no registers and no page tables in memory: address spaces are kept as runs in host memory
//! ([`spaces`]), where the MMU's walker finds them; channels are bound by the core's own controls
//! ([`channels`]); what happens is collected in an [`outbox`]. Everything behind that is the same hardware
//! model as GF100's: FIFO, PBDMAs, TLBs, engines, with GH100's classes.
//!
//! The first bank of VRAM is the executor's own: instance blocks and context images lie there, and no
//! tenant's partition ever covers it.
//!
//! Not handled: drawing (refused with an error of its channel), several runlists (one holds all channels;
//! engines run concurrently all the same).

mod channels;
mod driver;
mod memory;
mod outbox;
mod spaces;

use std::sync::Arc;
use std::time::Duration;

use self::channels::{Channels, HOST_VRAM, USABLE};
use self::outbox::Outbox;
use self::spaces::Spaces;
use super::{VRAM_UNIT, bank_size};
use crate::chip::GH100;
use crate::core::Core;
use crate::mmu::walker::Walker;
use crate::{Preemption, Workers};
use gpuvmk_backend::{Backend, EngineBackend, FifoState};
use gpuvmk_chip::addr::{HostVram, Iova};
use gpuvmk_chip::gh100::userd::USERD_SIZE;
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::{Chip, gh100};
use gpuvmk_gpu::space_map::SpaceShape;
use gpuvmk_gpu::{GpuInfo, OwnershipLedger, ScrubMode, SpaceHandle};

/// Bits of a bus address.
const SYSTEM_BITS: u8 = 52;

/// First bus address for tenants' memory; low addresses stay free of it, so that a truncated address never
/// reaches anybody's memory.
const FIRST_IOVA: Iova = Iova(1 << 32);

/// Bytes of host memory for the runs of all address spaces together. A million runs fit.
const TABLE_MEMORY: u64 = 128 << 20;

/// What distinguishes one executor from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// Bytes of VRAM, a multiple of [`VRAM_UNIT`] up to [`super::MAX_VRAM`]. The first bank is not for
    /// tenants.
    pub vram: u64,
    /// Threads that execute a grid.
    pub workers: Workers,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self { vram: 256 << 20, workers: Workers::ONE }
    }
}

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// All VRAM would be the host's own, and none be left for tenants.
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
        let ExecutorConfig { vram, workers } = config;
        let own = bank_size(vram);
        if vram < own.saturating_add(VRAM_UNIT) || own < HOST_VRAM {
            return Err(ExecutorError::TooSmall { vram, own });
        }
        let no_core = |source| ExecutorError::Core { vram, source };
        let shape = SpaceShape {
            va_bits: u8::try_from(Gmmu::V3.va_bits()).unwrap_or(u8::MAX),
            system_bits: SYSTEM_BITS,
            page_shifts: GH100.page_shifts,
            join: true,
        };
        let spaces = Arc::new(Spaces::new(shape));
        let walker: Arc<dyn Walker> = Arc::clone(&spaces) as Arc<dyn Walker>;
        let core = Core::of(&GH100, walker, vram, workers).map_err(no_core)?;
        let outbox = Arc::new(Outbox::new().map_err(no_core)?);
        core.connect_events(Arc::clone(&outbox) as _);
        let engines = GH100.engines();
        core.set_fifo_state(FifoState {
            enabled: true,
            pbdma_mask: u32::MAX,
            ready: engines,
            large_pages_64k: false,
        });
        let info = GpuInfo {
            chip: Chip::GH100,
            classes: gh100::methods::GSP_CLASSES.clone(),
            tenant_vram: HostVram(own),
            tenant_vram_size: vram.saturating_sub(own),
            partition_granule: own,
            channels: USABLE,
            engines,
            userd_granule: USERD_SIZE,
            slow_vram_reads: false,
            texture_clusters: None,
            va_bits: shape.va_bits,
            page_shifts: shape.page_shifts.to_vec(),
            system_bits: shape.system_bits,
            first_iova: FIRST_IOVA,
            spaces: u32::try_from(spaces::MAX_SPACES).unwrap_or(u32::MAX),
            table_memory: TABLE_MEMORY,
            scrub: ScrubMode::Files,
            // This time was not measured. An engine's thread saves one channel's state and loads another's.
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

    /// The ledger of true owners, for the aggregator's admission code to label.
    pub fn ledger(&self) -> Arc<dyn OwnershipLedger> {
        self.core.ledger()
    }

    /// How often threads of the crew have helped with a grid.
    #[cfg(test)]
    fn helped(&self) -> u64 {
        self.core.helped()
    }

    /// Page directories of which the MMU remembers translations.
    #[cfg(test)]
    fn remembered_directories(&self) -> usize {
        self.core.system().mmu.remembered()
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "tests pick words apart")]
mod tests;
