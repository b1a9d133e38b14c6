//! What all units of the engine core share: memory, the MMU, the ledger, the clock, and the way back to the
//! register face.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::Preemption;
use crate::chip::Description;
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::mmu::Mmu;
use crate::mmu::walker::Walker;
use crate::vram::Vram;
use crate::vram::memory::Memory;
use gpuvmk_pci::dma::DmaSpace;
use gpuvmk_units::backend::EngineEvents;

/// The shared part.
pub(crate) struct Hardware {
    pub(crate) chip: &'static Description,
    pub(crate) memory: Memory,
    pub(crate) mmu: Mmu,
    pub(crate) ledger: Arc<Ledger>,
    /// Held by whoever reads, changes and writes back a word: reductions exclude each other.
    pub(crate) reductions: Mutex<()>,
    /// Work leaves an engine between methods only.
    whole_methods: AtomicBool,
    events: OnceLock<Arc<dyn EngineEvents>>,
    pub(crate) clock: Clock,
}

impl std::fmt::Debug for Hardware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hardware").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Hardware {
    pub(crate) fn new(
        chip: &'static Description,
        walker: Arc<dyn Walker>,
        vram: u64,
    ) -> std::io::Result<Self> {
        Ok(Self {
            chip,
            memory: Memory { vram: Vram::new(vram)?, system: DmaSpace::new() },
            mmu: Mmu::new(walker, chip.va_max, chip.page_shifts),
            reductions: Mutex::new(()),
            ledger: Arc::new(Ledger::new(vram, chip.channels)),
            whole_methods: AtomicBool::new(false),
            events: OnceLock::new(),
            clock: Clock::start(),
        })
    }

    /// Where work leaves an engine that others want.
    pub(crate) fn preemption(&self) -> Preemption {
        if self.whole_methods.load(Ordering::Relaxed) { Preemption::Methods } else { Preemption::Anywhere }
    }

    /// Sets that.
    pub(crate) fn set_preemption(&self, preemption: Preemption) {
        self.whole_methods.store(preemption == Preemption::Methods, Ordering::Relaxed);
    }

    /// The first caller wins; there is one.
    pub(crate) fn connect(&self, events: Arc<dyn EngineEvents>) {
        if self.events.set(events).is_err() {
            log::warn!("softgpu: a second receiver of events was refused");
        }
    }

    /// Where events go. To be called without holding a lock of this room: the receiver may call back.
    pub(crate) fn tell(&self, event: impl FnOnce(&dyn EngineEvents)) {
        if let Some(events) = self.events.get() {
            event(events.as_ref());
        }
    }
}
