//! A back that has VRAM and records its calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvmk_backend::testing::DeferredCompletions;
use gpuvmk_backend::{
    Backend, Completions, EngineBackend, EngineEvents, EngineStatus, FifoState, FlushScope,
    InterruptInterest, NoTarget, VramPiece, WindowTables, Windows,
};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_pci::dma::MAX_MAPPINGS;
use gpuvmk_pci::{DmaError, DmaMapping, SharedMemory};

/// What the face told the back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    FifoState(FifoState),
    Flush(FlushScope),
    Bind(u16, Option<PhysicalAddress>),
    Enable(u16, bool),
    Runlist(PhysicalAddress, u32),
    Preempt(u16),
    Doorbell(u16, u32),
    BindGraphics(Option<PhysicalAddress>),
    SaveGraphics(PhysicalAddress),
    ResetEngines(EngineSet),
    Block(bool),
    Share(u64, u64),
    Reset,
}

pub struct FakeBackend {
    vram: Mutex<Vec<u8>>,
    calls: Mutex<Vec<Call>>,
    events: Mutex<Option<Arc<dyn EngineEvents>>>,
    pub status: Mutex<EngineStatus>,
    pub preempting: Mutex<bool>,
    /// Ends of work that are kept back.
    pub ends: DeferredCompletions,
    /// Positions of PRAMIN and of BAR3's tables, as they were set last.
    pub shown: Mutex<(Option<u64>, Option<u64>)>,
    /// True when it wants to know that.
    pub follows_windows: AtomicBool,
}

impl FakeBackend {
    pub fn new(vram: usize) -> Self {
        Self {
            vram: Mutex::new(vec![0; vram]),
            calls: Mutex::default(),
            events: Mutex::default(),
            status: Mutex::default(),
            preempting: Mutex::default(),
            ends: DeferredCompletions::default(),
            shown: Mutex::default(),
            follows_windows: AtomicBool::default(),
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

    pub fn put(&self, address: u64, value: u64) {
        self.write_memory(PhysicalAddress { aperture: Aperture::Vram, address }, &value.to_le_bytes())
            .unwrap();
    }

    pub fn get(&self, address: u64) -> u32 {
        let mut raw = [0; 4];
        self.read_memory(PhysicalAddress { aperture: Aperture::Vram, address }, &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }
}

fn range(address: PhysicalAddress, size: usize, limit: usize) -> Result<std::ops::Range<usize>, NoTarget> {
    let start = usize::try_from(address.address).ok().filter(|_| address.aperture == Aperture::Vram);
    let end = start.and_then(|start| start.checked_add(size)).filter(|end| *end <= limit);
    start.zip(end).map(|(start, end)| start..end).ok_or(NoTarget { address, size })
}

impl Backend for FakeBackend {
    fn vram_size(&self) -> u64 {
        self.vram.lock().unwrap().len() as u64
    }

    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        let vram = self.vram.lock().unwrap();
        data.copy_from_slice(&vram[range(address, data.len(), vram.len())?]);
        Ok(())
    }

    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        let mut vram = self.vram.lock().unwrap();
        let range = range(address, data.len(), vram.len())?;
        vram[range].copy_from_slice(data);
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
        self.follows_windows.load(Ordering::SeqCst).then_some(self)
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

impl Windows for FakeBackend {
    fn bar3_memory(&self) -> std::io::Result<SharedMemory> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn pramin_memory(&self) -> std::io::Result<SharedMemory> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn show_bar3(&self, tables: Option<WindowTables>) {
        self.shown.lock().unwrap().1 = tables.map(|tables| tables.table.address);
    }

    fn show_pramin(&self, start: Option<u64>) {
        self.shown.lock().unwrap().0 = start;
    }

    fn settle(&self) {}

    fn client_gone(&self) {}
}

impl EngineBackend for FakeBackend {
    fn set_fifo_state(&self, state: FifoState) {
        self.note(Call::FifoState(state));
    }

    fn bind_channel(&self, channel: GuestChannel, instance: Option<PhysicalAddress>) {
        self.note(Call::Bind(channel.0, instance));
    }

    fn enable_channel(&self, channel: GuestChannel, enabled: bool) {
        self.note(Call::Enable(channel.0, enabled));
    }

    fn commit_runlist(&self, list: PhysicalAddress, count: u32) {
        self.note(Call::Runlist(list, count));
    }

    fn preempt_channel(&self, channel: GuestChannel) {
        self.note(Call::Preempt(channel.0));
    }

    fn preempt_pending(&self) -> bool {
        *self.preempting.lock().unwrap()
    }

    fn bind_graphics_context(&self, instance: Option<PhysicalAddress>) {
        self.note(Call::BindGraphics(instance));
    }

    fn save_graphics_context(&self, instance: PhysicalAddress) {
        self.note(Call::SaveGraphics(instance));
    }

    fn reset_engines(&self, engines: EngineSet) {
        self.note(Call::ResetEngines(engines));
    }

    fn engine_busy_time(&self, _: Engine) -> Duration {
        Duration::ZERO
    }

    fn engine_status(&self, _: Engine) -> EngineStatus {
        *self.status.lock().unwrap()
    }

    fn block_runlist(&self, blocked: bool) {
        self.note(Call::Block(blocked));
    }
}
