//! A back with system memory that records channels.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gpuvmk_backend::{
    Backend, ChannelRefusal, Completions, EngineEvents, FlushScope, GspBackend, GspChannel, NoTarget,
    ObjectUsage, VramPiece, Windows,
};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_pci::dma::MAX_MAPPINGS;
use gpuvmk_pci::{DmaError, DmaMapping, SharedMemory};

/// What the GSP asked the back for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Create(u16, GspChannel),
    Object(u16, u32, Engine),
    Schedule(u16, bool),
    Destroy(u16),
    Doorbell(u16, u32),
    Flush(PhysicalAddress),
}

#[derive(Default)]
pub struct Fake {
    ram: Mutex<Vec<u8>>,
    /// Bytes of VRAM that somebody wrote.
    vram: Mutex<BTreeMap<u64, u8>>,
    calls: Mutex<Vec<Call>>,
    live: Mutex<BTreeMap<u16, GspChannel>>,
    /// The answer to the next calls that can be refused.
    pub refusal: Mutex<Option<ChannelRefusal>>,
}

impl Fake {
    pub fn new(ram: usize) -> Self {
        Self { ram: Mutex::new(vec![0; ram]), ..Self::default() }
    }

    /// What was asked since the last call of this.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// Channels that exist.
    pub fn live(&self) -> BTreeMap<u16, GspChannel> {
        self.live.lock().unwrap().clone()
    }

    /// Guest memory at a bus address.
    pub fn get(&self, address: u64, size: usize) -> Vec<u8> {
        let start = usize::try_from(address).unwrap();
        self.ram.lock().unwrap()[start..start + size].to_vec()
    }

    pub fn put(&self, address: u64, data: &[u8]) {
        let start = usize::try_from(address).unwrap();
        self.ram.lock().unwrap()[start..start + data.len()].copy_from_slice(data);
    }

    /// Takes all guest memory away.
    pub fn unplug(&self) {
        self.ram.lock().unwrap().clear();
    }

    /// VRAM at an address; 0 where nobody wrote.
    pub fn vram(&self, address: u64, size: usize) -> Vec<u8> {
        let vram = self.vram.lock().unwrap();
        (address..).take(size).map(|at| vram.get(&at).copied().unwrap_or(0)).collect()
    }

    pub fn put_vram(&self, address: u64, data: &[u8]) {
        self.vram.lock().unwrap().extend((address..).zip(data.iter().copied()));
    }

    /// What a reset leaves: the guest's memory.
    pub fn power_off(&self) {
        self.vram.lock().unwrap().clear();
        self.live.lock().unwrap().clear();
        self.calls.lock().unwrap().clear();
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    fn refuse(&self) -> Result<(), ChannelRefusal> {
        self.refusal.lock().unwrap().map_or(Ok(()), Err)
    }

    fn range(
        address: PhysicalAddress,
        size: usize,
        limit: usize,
    ) -> Result<std::ops::Range<usize>, NoTarget> {
        let start = usize::try_from(address.address).ok();
        let end = start.and_then(|start| start.checked_add(size)).filter(|end| *end <= limit);
        start.zip(end).map(|(start, end)| start..end).ok_or(NoTarget { address, size })
    }
}

impl Backend for Fake {
    fn vram_size(&self) -> u64 {
        256 << 20
    }

    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        if address.aperture == Aperture::Vram {
            Self::range(address, data.len(), 256 << 20)?;
            data.copy_from_slice(&self.vram(address.address, data.len()));
            return Ok(());
        }
        let ram = self.ram.lock().unwrap();
        data.copy_from_slice(&ram[Self::range(address, data.len(), ram.len())?]);
        Ok(())
    }

    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        if address.aperture == Aperture::Vram {
            Self::range(address, data.len(), 256 << 20)?;
            self.put_vram(address.address, data);
            return Ok(());
        }
        let mut ram = self.ram.lock().unwrap();
        let range = Self::range(address, data.len(), ram.len())?;
        ram[range].copy_from_slice(data);
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

    fn flush_tlb(&self, scope: FlushScope) {
        self.note(Call::Flush(scope.page_directory));
    }

    fn doorbell(&self, slot: GuestChannel, gp_put: u32) {
        self.note(Call::Doorbell(slot.0, gp_put));
    }

    fn reset(&self) {}
}

impl GspBackend for Fake {
    fn note_objects(&self, _: ObjectUsage) {}

    fn channels(&self) -> u16 {
        64
    }

    fn engines(&self) -> EngineSet {
        EngineSet::all()
    }

    fn create_channel(&self, slot: GuestChannel, channel: GspChannel) -> Result<(), ChannelRefusal> {
        self.refuse()?;
        self.note(Call::Create(slot.0, channel));
        let before = self.live.lock().unwrap().insert(slot.0, channel);
        assert_eq!(before, None, "{slot:?} is in use");
        Ok(())
    }

    fn create_object(&self, slot: GuestChannel, class: u32, engine: Engine) -> Result<(), ChannelRefusal> {
        self.refuse()?;
        assert!(self.live.lock().unwrap().contains_key(&slot.0), "{slot:?} is empty");
        self.note(Call::Object(slot.0, class, engine));
        Ok(())
    }

    fn schedule_channel(&self, slot: GuestChannel, scheduled: bool) -> Result<(), ChannelRefusal> {
        self.refuse()?;
        assert!(self.live.lock().unwrap().contains_key(&slot.0), "{slot:?} is empty");
        self.note(Call::Schedule(slot.0, scheduled));
        Ok(())
    }

    fn destroy_channel(&self, slot: GuestChannel) {
        self.note(Call::Destroy(slot.0));
        let before = self.live.lock().unwrap().remove(&slot.0);
        assert!(before.is_some(), "{slot:?} is destroyed twice");
    }
}
