//! The memory system: physical memory, the MMU in front of it, and the ledger that watches accesses.

use std::sync::Arc;

use super::Mmu;
use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::vram::Vram;
use crate::vram::memory::Memory;
use gpuvmk_pci::dma::DmaSpace;

/// The memory system. Everything in it may be used from any thread.
#[derive(Debug)]
pub(crate) struct MemorySystem {
    pub(crate) memory: Memory,
    pub(crate) mmu: Mmu,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) clock: Clock,
}

impl MemorySystem {
    /// `vram` zero bytes and no system memory behind `mmu`, for `channels` channels; all of it is the host's.
    ///
    /// # Errors
    /// There is no such VRAM.
    pub(crate) fn new(vram: u64, mmu: Mmu, channels: u16) -> std::io::Result<Self> {
        Ok(Self {
            memory: Memory { vram: Vram::new(vram)?, system: DmaSpace::new() },
            mmu,
            ledger: Arc::new(Ledger::new(vram, channels)),
            clock: Clock::start(),
        })
    }
}
