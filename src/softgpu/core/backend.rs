//! The core behind any register face: memory, DMA, flushes, doorbells, reset.

use std::sync::Arc;

use super::Core;
use crate::events::hardware_number;
use gpuvmk_backend::{Backend, Completions, EngineEvents, FlushScope, NoTarget, VramPiece, Windows};
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_pci::dma::MAX_MAPPINGS;
use gpuvmk_pci::{DmaError, DmaMapping, SharedMemory};

impl Backend for Core {
    fn vram_size(&self) -> u64 {
        self.shared.system.memory.vram.size()
    }

    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.shared.system.memory.read(address, data)
    }

    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        self.shared.system.memory.write(address, data)
    }

    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.read_memory(address, data)
    }

    fn most_dma_ranges(&self) -> usize {
        MAX_MAPPINGS
    }

    fn windows(&self) -> Option<&dyn Windows> {
        None
    }

    fn completions(&self) -> Option<&dyn Completions> {
        None
    }

    fn share_vram(&self, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.shared.system.memory.vram.share(offset, size)
    }

    fn renew_vram(&self, offset: u64, size: u64) -> std::io::Result<()> {
        self.renewals.ask(offset, size, || {
            let shared = Arc::clone(&self.shared);
            move || shared.system.memory.vram.renew(offset, size)
        })
    }

    fn show_vram(&self, offset: u64, size: u64, visit: &mut dyn FnMut(VramPiece<'_>)) {
        self.shared.system.memory.vram.show(offset, size, visit);
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        self.shared.system.memory.system.map(mapping)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        // The DMA table itself waits for accesses under way.
        self.shared.system.memory.system.unmap(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.shared.system.memory.system.unmap_all();
    }

    fn connect_events(&self, events: Arc<dyn EngineEvents>) {
        self.shared.events.connect(events);
    }

    fn flush_tlb(&self, scope: FlushScope) {
        self.shared.system.mmu.flush(scope);
    }

    fn doorbell(&self, channel: GuestChannel, _gp_put: u32) {
        self.ring(hardware_number(channel));
    }

    fn reset(&self) {
        self.shared.fifo().resetting = true;
        self.shared.alert_all();
        for unit in &self.shared.units {
            unit.reset();
        }
        let mut fifo = self.shared.wait_left(self.shared.fifo(), None);
        fifo.clear();
        fifo.resetting = false;
        drop(fifo);
        // Contexts that were loaded between the engines' reset and now are dropped too.
        for unit in &self.shared.units {
            unit.reset();
        }
        self.shared.system.mmu.flush_all();
        self.shared.system.mmu.set_large_pages(false);
    }
}
