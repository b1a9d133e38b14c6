//! A back with system memory, which insists that what it is asked for makes sense.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuvmk::backend::{
    Backend, ChannelRefusal, Completions, EngineEvents, FlushScope, GspBackend, GspChannel, NoTarget,
    ObjectUsage, VramPiece, Windows,
};
use gpuvmk::chip::addr::GuestChannel;
use gpuvmk::chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk::pci::dma::MAX_MAPPINGS;
use gpuvmk::pci::{DmaError, DmaMapping, SharedMemory};

use crate::gsp_queues::{RAM_BYTES, Ram};
use crate::input::Input;

/// Bus address of the system memory.
pub(super) const BASE: u64 = 1 << 32;
/// Bytes of VRAM.
pub(super) const VRAM: u64 = 64 << 20;
/// Channel slots.
pub(super) const CHANNELS: u16 = 8;

#[derive(Debug)]
struct State {
    ram: Vec<u8>,
    live: BTreeSet<GuestChannel>,
    refusal: Option<ChannelRefusal>,
}

#[derive(Debug)]
pub(super) struct Back {
    state: Mutex<State>,
    engines: EngineSet,
}

impl Back {
    pub(super) fn new(engines: EngineSet) -> Self {
        let bytes = usize::try_from(RAM_BYTES).expect("a small memory");
        let state = State { ram: vec![0; bytes], live: BTreeSet::new(), refusal: None };
        Self { state: Mutex::new(state), engines }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn exists(&self, slot: GuestChannel) -> bool {
        self.state().live.contains(&slot)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().live.is_empty()
    }

    /// What a reset leaves: memory.
    pub(super) fn power_off(&self) {
        self.state().live.clear();
    }

    /// The next requests are refused, or not any more.
    pub(super) fn refuse(&self, input: &mut Input<'_>) {
        self.state().refusal = input.pick(&[
            None,
            None,
            Some(ChannelRefusal::Exhausted),
            Some(ChannelRefusal::Invalid),
            Some(ChannelRefusal::Lost),
        ]);
    }

    pub(super) fn obey(&self) {
        self.state().refusal = None;
    }

    fn answer(&self, slot: GuestChannel) -> Result<(), ChannelRefusal> {
        let state = self.state();
        assert!(state.live.contains(&slot), "{slot:?} is empty");
        state.refusal.map_or(Ok(()), Err)
    }
}

impl Ram for Back {
    fn put(&self, offset: u64, data: &[u8]) {
        // What does not fit is not written.
        let _ = self.write_memory(bus(BASE.wrapping_add(offset)), data);
    }

    fn get(&self, offset: u64, data: &mut [u8]) {
        let _ = self.read_memory(bus(BASE.wrapping_add(offset)), data);
    }
}

fn bus(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::SystemCoherent, address }
}

impl State {
    fn place(&mut self, address: PhysicalAddress, size: usize) -> Result<&mut [u8], NoTarget> {
        let start = address.address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(size)?));
        range.and_then(|range| self.ram.get_mut(range)).ok_or(NoTarget { address, size })
    }
}

impl Backend for Back {
    fn vram_size(&self) -> u64 {
        VRAM
    }

    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        if address.aperture == Aperture::Vram {
            // BAR1's root, USERD and page tables are asked for; there is nothing in them.
            data.fill(0);
            return Ok(());
        }
        data.copy_from_slice(self.state().place(address, data.len())?);
        Ok(())
    }

    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        if address.aperture != Aperture::Vram {
            self.state().place(address, data.len())?.copy_from_slice(data);
        }
        Ok(())
    }

    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.read_memory(address, data)
    }

    fn renew_vram(&self, _: u64, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn show_vram(&self, _: u64, _: u64, _: &mut dyn FnMut(VramPiece<'_>)) {}

    fn most_dma_ranges(&self) -> usize {
        MAX_MAPPINGS
    }

    fn windows(&self) -> Option<&dyn Windows> {
        None
    }

    fn completions(&self) -> Option<&dyn Completions> {
        None
    }

    fn share_vram(&self, _: u64, _: u64) -> std::io::Result<Vec<SharedMemory>> {
        Ok(Vec::new())
    }

    fn dma_map(&self, _: DmaMapping) -> Result<(), DmaError> {
        Ok(())
    }

    fn dma_unmap(&self, _: u64, _: u64) -> Result<(), DmaError> {
        Ok(())
    }

    fn dma_unmap_all(&self) {}

    fn connect_events(&self, _: Arc<dyn EngineEvents>) {}

    fn flush_tlb(&self, _: FlushScope) {}

    fn doorbell(&self, _: GuestChannel, _: u32) {}

    fn reset(&self) {}
}

impl GspBackend for Back {
    fn note_objects(&self, _: ObjectUsage) {}

    fn channels(&self) -> u16 {
        CHANNELS
    }

    fn engines(&self) -> EngineSet {
        self.engines
    }

    fn create_channel(&self, slot: GuestChannel, channel: GspChannel) -> Result<(), ChannelRefusal> {
        let mut state = self.state();
        assert!(slot.0 < CHANNELS, "there is no {slot:?}");
        assert!(!state.live.contains(&slot), "{slot:?} is in use");
        assert!(self.engines.contains(channel.engines), "engines that there are not");
        if let Some(refusal) = state.refusal {
            return Err(refusal);
        }
        state.live.insert(slot);
        Ok(())
    }

    fn create_object(&self, slot: GuestChannel, _class: u32, _engine: Engine) -> Result<(), ChannelRefusal> {
        self.answer(slot)
    }

    fn schedule_channel(&self, slot: GuestChannel, _scheduled: bool) -> Result<(), ChannelRefusal> {
        self.answer(slot)
    }

    fn destroy_channel(&self, slot: GuestChannel) {
        assert!(self.state().live.remove(&slot), "{slot:?} is destroyed twice");
    }
}
