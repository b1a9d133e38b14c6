//! The back of a chip with GSP, without a GPU: it has memory, writes down what it is asked for, and insists
//! that it makes sense.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::DeferredCompletions;
use super::fake_memory::FakeMemory;
use crate::{
    Backend, ChannelRefusal, Completions, EngineEvents, EngineTime, FlushScope, GspBackend, GspChannel,
    InterruptInterest, NoTarget, ObjectUsage, VramPiece, Windows,
};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress, TextureClusters};
use gpuvmk_pci::dma::MAX_MAPPINGS;
use gpuvmk_pci::{DmaError, DmaMapping, SharedMemory};

/// What a [`FakeGspBack`] was asked for. Channels are meant by their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackCall {
    /// Drop translations.
    Flush(FlushScope),
    /// Make a channel.
    Create(u16, GspChannel),
    /// Make an object of a class on a channel.
    Object(u16, u32, Engine),
    /// Let a channel run, or hold it back.
    Schedule(u16, bool),
    /// Take a channel away.
    Destroy(u16),
    /// A channel's new GP_PUT.
    Doorbell(u16, u32),
    /// Share VRAM: offset and size.
    Share(u64, u64),
    /// Function reset.
    Reset,
}

/// What a [`FakeGspBack`] has.
#[derive(Clone, Debug)]
pub struct FakeGspBackConfig {
    /// Bytes of VRAM.
    pub vram: u64,
    /// Bus addresses of the guest's memory.
    pub ram: Range<u64>,
    /// Number of channel slots.
    pub channels: u16,
    /// Engines that channels can be made for.
    pub engines: EngineSet,
}

/// Something that happens while a channel is made.
type Interlude = Box<dyn FnOnce(&dyn EngineEvents) + Send>;

#[derive(Default)]
struct State {
    vram: FakeMemory,
    ram: FakeMemory,
    calls: Vec<BackCall>,
    live: BTreeMap<GuestChannel, GspChannel>,
    refusal: Option<ChannelRefusal>,
    objects: Option<ObjectUsage>,
    engine_time: Option<EngineTime>,
    texture_clusters: Option<TextureClusters>,
    interlude: Option<Interlude>,
}

/// See the module. It panics when it is asked for what a face must never ask for, whatever its driver says: a
/// channel in a slot that is in use, or an object in one that is empty.
pub struct FakeGspBack {
    channels: u16,
    engines: EngineSet,
    state: Mutex<State>,
    events: Mutex<Option<Arc<dyn EngineEvents>>>,
    /// Ends of work that are held back.
    pub ends: DeferredCompletions,
}

impl fmt::Debug for FakeGspBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeGspBack").finish_non_exhaustive()
    }
}

impl FakeGspBack {
    /// A back with no channel; its memory is zero.
    pub fn new(config: FakeGspBackConfig) -> Self {
        let FakeGspBackConfig { vram, ram, channels, engines } = config;
        let (vram, ram) = (FakeMemory::new(0..vram), FakeMemory::new(ram));
        let state = Mutex::new(State { vram, ram, ..State::default() });
        Self { channels, engines, state, events: Mutex::default(), ends: DeferredCompletions::default() }
    }

    // A test that failed while it was held fails anyway.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was asked for since the last call of this, but channels' requests that were refused.
    pub fn calls(&self) -> Vec<BackCall> {
        std::mem::take(&mut self.state().calls)
    }

    /// Its graphics engine has no more than that.
    pub fn set_texture_clusters(&self, clusters: TextureClusters) {
        self.state().texture_clusters = Some(clusters);
    }

    /// Engines have worked for that long.
    pub fn set_engine_time(&self, time: EngineTime) {
        self.state().engine_time = Some(time);
    }

    /// Channels that exist, by their slots.
    pub fn live(&self) -> BTreeMap<GuestChannel, GspChannel> {
        self.state().live.clone()
    }

    /// Requests of channels are refused from now on, or with `None` not any more.
    pub fn refuse(&self, refusal: Option<ChannelRefusal>) {
        self.state().refusal = refusal;
    }

    /// The last that the face said of its driver's objects.
    pub fn objects(&self) -> Option<ObjectUsage> {
        self.state().objects
    }

    /// Has `interlude` called while the next channel is made.
    pub fn interrupt_creation(&self, interlude: impl FnOnce(&dyn EngineEvents) + Send + 'static) {
        self.state().interlude = Some(Box::new(interlude));
    }

    /// The face that is connected.
    pub fn events(&self) -> Arc<dyn EngineEvents> {
        self.events.lock().unwrap().clone().unwrap()
    }

    /// The face goes: another one may be connected.
    pub fn disconnect(&self) {
        self.events.lock().unwrap().take();
    }

    /// Takes all guest memory away.
    pub fn unplug(&self) {
        self.state().ram = FakeMemory::default();
    }

    /// The GPU loses its power, as in a suspension: the guest's memory is all that stays.
    pub fn power_off(&self) {
        let mut state = self.state();
        state.vram.clear();
        state.live.clear();
        state.calls.clear();
    }

    /// Guest memory, `offset` bytes from its first address.
    #[track_caller]
    pub fn ram(&self, offset: u64, size: usize) -> Vec<u8> {
        let state = self.state();
        let mut data = vec![0; size];
        assert!(state.ram.read(state.ram.range().start + offset, &mut data), "no memory at {offset:#x}");
        data
    }

    /// Writes guest memory, `offset` bytes from its first address.
    #[track_caller]
    pub fn put_ram(&self, offset: u64, data: &[u8]) {
        let mut state = self.state();
        let address = state.ram.range().start + offset;
        assert!(state.ram.write(address, data), "no memory at {offset:#x}");
    }

    /// VRAM.
    #[track_caller]
    pub fn vram(&self, address: u64, size: usize) -> Vec<u8> {
        let mut data = vec![0; size];
        assert!(self.state().vram.read(address, &mut data), "no VRAM at {address:#x}");
        data
    }

    /// A word of VRAM.
    #[track_caller]
    pub fn vram_word(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.vram(address, 4).try_into().unwrap())
    }

    /// Writes VRAM.
    #[track_caller]
    pub fn put_vram(&self, address: u64, data: &[u8]) {
        assert!(self.state().vram.write(address, data), "no VRAM at {address:#x}");
    }

    fn note(&self, call: BackCall) {
        self.state().calls.push(call);
    }

    /// A request of a channel that there must be.
    fn ask(&self, slot: GuestChannel, call: BackCall) -> Result<(), ChannelRefusal> {
        let mut state = self.state();
        assert!(state.live.contains_key(&slot), "{slot:?} is empty");
        state.answer(call)
    }
}

impl State {
    fn answer(&mut self, call: BackCall) -> Result<(), ChannelRefusal> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        self.calls.push(call);
        Ok(())
    }
}

impl Backend for FakeGspBack {
    fn vram_size(&self) -> u64 {
        self.state().vram.range().end
    }

    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        let state = self.state();
        let memory = if address.aperture == Aperture::Vram { &state.vram } else { &state.ram };
        let read = memory.read(address.address, data);
        if read { Ok(()) } else { Err(NoTarget { address, size: data.len() }) }
    }

    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        let state = &mut *self.state();
        let memory = if address.aperture == Aperture::Vram { &mut state.vram } else { &mut state.ram };
        let written = memory.write(address.address, data);
        if written { Ok(()) } else { Err(NoTarget { address, size: data.len() }) }
    }

    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.read_memory(address, data)
    }

    fn renew_vram(&self, _: u64, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn show_vram(&self, _: u64, _: u64, _: &mut dyn FnMut(VramPiece<'_>)) {}

    fn share_vram(&self, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.note(BackCall::Share(offset, size));
        Ok(Vec::new())
    }

    fn dma_map(&self, _: DmaMapping) -> Result<(), DmaError> {
        Ok(())
    }

    fn dma_unmap(&self, _: u64, _: u64) -> Result<(), DmaError> {
        Ok(())
    }

    fn dma_unmap_all(&self) {}

    fn most_dma_ranges(&self) -> usize {
        MAX_MAPPINGS
    }

    fn connect_events(&self, events: Arc<dyn EngineEvents>) {
        let before = self.events.lock().unwrap().replace(events);
        assert!(before.is_none(), "the events of a back go to one face");
    }

    fn flush_tlb(&self, scope: FlushScope) {
        self.note(BackCall::Flush(scope));
    }

    fn doorbell(&self, channel: GuestChannel, gp_put: u32) {
        self.note(BackCall::Doorbell(channel.0, gp_put));
    }

    fn reset(&self) {
        let mut state = self.state();
        state.live.clear();
        state.calls.push(BackCall::Reset);
    }

    fn windows(&self) -> Option<&dyn Windows> {
        None
    }

    fn completions(&self) -> Option<&dyn Completions> {
        Some(self)
    }
}

impl Completions for FakeGspBack {
    fn set_completion_interest(&self, interest: InterruptInterest) -> bool {
        self.ends.set_interest(interest, &*self.events())
    }

    fn take_completions(&self) -> bool {
        self.ends.bring(&*self.events())
    }
}

impl GspBackend for FakeGspBack {
    fn channels(&self) -> u16 {
        self.channels
    }

    fn engines(&self) -> EngineSet {
        self.engines
    }

    fn texture_clusters(&self) -> Option<TextureClusters> {
        self.state().texture_clusters
    }

    fn create_channel(&self, slot: GuestChannel, channel: GspChannel) -> Result<(), ChannelRefusal> {
        assert!(slot.0 < self.channels, "there is no {slot:?}");
        assert!(self.engines.contains(channel.engines), "engines that there are not");
        let interlude = {
            let mut state = self.state();
            assert!(!state.live.contains_key(&slot), "{slot:?} is in use");
            state.answer(BackCall::Create(slot.0, channel))?;
            state.live.insert(slot, channel);
            state.interlude.take()
        };
        if let Some(interlude) = interlude {
            interlude(&*self.events());
        }
        Ok(())
    }

    fn create_object(&self, slot: GuestChannel, class: u32, engine: Engine) -> Result<(), ChannelRefusal> {
        self.ask(slot, BackCall::Object(slot.0, class, engine))
    }

    fn schedule_channel(&self, slot: GuestChannel, scheduled: bool) -> Result<(), ChannelRefusal> {
        self.ask(slot, BackCall::Schedule(slot.0, scheduled))
    }

    fn destroy_channel(&self, slot: GuestChannel) {
        let mut state = self.state();
        assert!(state.live.remove(&slot).is_some(), "{slot:?} is destroyed twice");
        state.calls.push(BackCall::Destroy(slot.0));
    }

    fn engine_time(&self) -> Option<EngineTime> {
        self.state().engine_time
    }

    fn note_objects(&self, usage: ObjectUsage) {
        self.state().objects = Some(usage);
    }
}
