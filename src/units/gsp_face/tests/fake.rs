//! A back that has VRAM and guest memory, and records its calls.

use std::sync::{Arc, Mutex};

use crate::deferred_completions::DeferredCompletions;
use gpuvmk_backend::{
    Backend, ChannelRefusal, Completions, EngineEvents, FlushScope, GspBackend, GspChannel,
    InterruptInterest, NoTarget, ObjectUsage, VramPiece, Windows,
};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_pci::dma::MAX_MAPPINGS;
use gpuvmk_pci::{DmaError, DmaMapping, SharedMemory};

/// Bus address of the guest's memory, and its bytes.
pub const RAM: u64 = 0x1_0000_0000;
const RAM_SIZE: usize = 2 << 20;

/// What the face told the back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Flush(FlushScope),
    Create(u16, GspChannel),
    Object(u16, u32, Engine),
    Schedule(u16, bool),
    Destroy(u16),
    Doorbell(u16, u32),
    Share(u64, u64),
    Reset,
}

/// Something that happens while the back makes a channel.
type Interlude = Box<dyn Fn(&dyn EngineEvents) + Send>;

pub struct FakeBackend {
    vram: Mutex<Vec<u8>>,
    ram: Mutex<Vec<u8>>,
    calls: Mutex<Vec<Call>>,
    events: Mutex<Option<Arc<dyn EngineEvents>>>,
    pub interlude: Mutex<Option<Interlude>>,
    /// What was last told of objects.
    pub objects: Mutex<Option<ObjectUsage>>,
    /// Ends of work that are kept back.
    pub ends: DeferredCompletions,
}

impl std::fmt::Debug for FakeBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeBackend").finish_non_exhaustive()
    }
}

impl FakeBackend {
    pub fn new(vram: u64) -> Self {
        Self {
            vram: Mutex::new(vec![0; usize::try_from(vram).unwrap()]),
            ram: Mutex::new(vec![0; RAM_SIZE]),
            calls: Mutex::default(),
            events: Mutex::default(),
            interlude: Mutex::default(),
            objects: Mutex::default(),
            ends: DeferredCompletions::default(),
        }
    }

    /// The calls since the last call of this.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    pub fn events(&self) -> Arc<dyn EngineEvents> {
        self.events.lock().unwrap().clone().unwrap()
    }

    /// The face goes: another one may be connected.
    pub fn disconnect(&self) {
        self.events.lock().unwrap().take();
    }

    pub fn put(&self, address: u64, data: &[u8]) {
        self.write_memory(PhysicalAddress { aperture: Aperture::Vram, address }, data).unwrap();
    }

    pub fn get(&self, address: u64) -> u32 {
        let mut raw = [0; 4];
        self.read_memory(PhysicalAddress { aperture: Aperture::Vram, address }, &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    /// Writes the guest's memory, `offset` from its start.
    pub fn put_ram(&self, offset: u64, data: &[u8]) {
        let address = RAM + offset;
        self.write_memory(PhysicalAddress { aperture: Aperture::SystemCoherent, address }, data).unwrap();
    }

    pub fn get_ram(&self, offset: u64, data: &mut [u8]) {
        let address = RAM + offset;
        self.read_memory(PhysicalAddress { aperture: Aperture::SystemCoherent, address }, data).unwrap();
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    fn with<R>(
        &self,
        address: PhysicalAddress,
        size: usize,
        access: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, NoTarget> {
        let (memory, base) = match address.aperture {
            Aperture::Vram => (&self.vram, 0),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => (&self.ram, RAM),
        };
        let mut memory = memory.lock().unwrap();
        let start = address.address.checked_sub(base).and_then(|start| usize::try_from(start).ok());
        let range = start.and_then(|start| memory.get_mut(start..start.checked_add(size)?));
        range.map(access).ok_or(NoTarget { address, size })
    }
}

impl Backend for FakeBackend {
    fn vram_size(&self) -> u64 {
        self.vram.lock().unwrap().len() as u64
    }

    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.with(address, data.len(), |memory| data.copy_from_slice(memory))
    }

    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        self.with(address, data.len(), |memory| memory.copy_from_slice(data))
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
        Some(self)
    }

    fn share_vram(&self, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.note(Call::Share(offset, size));
        Ok(Vec::new())
    }

    fn dma_map(&self, _: DmaMapping) -> Result<(), DmaError> {
        Ok(())
    }

    fn dma_unmap(&self, _: u64, _: u64) -> Result<(), DmaError> {
        Ok(())
    }

    fn dma_unmap_all(&self) {}

    fn connect_events(&self, events: Arc<dyn EngineEvents>) {
        let before = self.events.lock().unwrap().replace(events);
        assert!(before.is_none(), "the events of a back go to one face");
    }

    fn flush_tlb(&self, scope: FlushScope) {
        self.note(Call::Flush(scope));
    }

    fn doorbell(&self, channel: GuestChannel, gp_put: u32) {
        self.note(Call::Doorbell(channel.0, gp_put));
    }

    fn reset(&self) {
        self.note(Call::Reset);
    }
}

impl Completions for FakeBackend {
    fn set_completion_interest(&self, interest: InterruptInterest) -> bool {
        self.ends.set_interest(interest, &*self.events())
    }

    fn take_completions(&self) -> bool {
        self.ends.bring(&*self.events())
    }
}

impl GspBackend for FakeBackend {
    fn channels(&self) -> u16 {
        16
    }

    fn engines(&self) -> EngineSet {
        EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2
    }

    fn create_channel(&self, slot: GuestChannel, channel: GspChannel) -> Result<(), ChannelRefusal> {
        self.note(Call::Create(slot.0, channel));
        if let Some(interlude) = self.interlude.lock().unwrap().take() {
            interlude(&*self.events());
        }
        Ok(())
    }

    fn create_object(&self, slot: GuestChannel, class: u32, engine: Engine) -> Result<(), ChannelRefusal> {
        self.note(Call::Object(slot.0, class, engine));
        Ok(())
    }

    fn schedule_channel(&self, slot: GuestChannel, scheduled: bool) -> Result<(), ChannelRefusal> {
        self.note(Call::Schedule(slot.0, scheduled));
        Ok(())
    }

    fn destroy_channel(&self, slot: GuestChannel) {
        self.note(Call::Destroy(slot.0));
    }

    fn note_objects(&self, usage: ObjectUsage) {
        *self.objects.lock().unwrap() = Some(usage);
    }
}
