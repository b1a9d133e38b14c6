//! The PCI function: regions, apertures, doorbells, and the effects of register accesses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::alarm::Alarm;
use super::effect::{Effect, FlushTarget, ReadResult, WindowBlock, WindowId};
use super::face::Face;
use super::pbus::window_start;
use super::registers::Registers;
use crate::chip::gf100::mmu::LargePages;
use crate::chip::gf100::{CHANNELS, ramin};
use crate::chip::registers::Reg;
use crate::chip::{AccessKind, Aperture, Engine, PhysicalAddress};
use crate::mmio_trap::PhysicalMemory;
use crate::mmio_trap::access::{check, lanes};
use crate::mmio_trap::aperture::{Window, decode_directory};
use crate::pci::config_space::{BuildError, CONFIG_SIZE, Capability, ConfigSpaceBuilder, Identity};
use crate::pci::{
    AccessError, DmaError, DmaMapping, InterruptSink, PciFunction, Region, RegionInfo, RegionKind,
    RegionTable, SharedMemory, vbios,
};
use crate::units::backend::{EngineBackend, EngineStatus, FifoState, FlushScope};
use crate::units::clock::{Clock, MonotonicClock};

/// Bytes of BAR0, the registers.
const BAR0_SIZE: u64 = 16 << 20;
/// Bytes of BAR1.
const BAR1_SIZE: u64 = 128 << 20;
/// Bytes of BAR3.
const BAR3_SIZE: u64 = 64 << 20;
/// Bytes of BAR5, an I/O window that is not modelled.
const BAR5_SIZE: u64 = 128;
/// The VBIOS window in BAR0.
const PROM: std::ops::Range<u64> = 0x30_0000..0x40_0000;
/// The moving VRAM window in BAR0.
const PRAMIN: std::ops::Range<u64> = 0x70_0000..0x80_0000;
/// Where capabilities lie, as on real cards.
const PM_CAPABILITY: u8 = 0x60;
const MSI_CAPABILITY: u8 = 0x68;
const PCIE_CAPABILITY: u8 = 0x78;
/// NVIDIA.
const VENDOR: u16 = 0x10de;
/// 3D controller; no VGA arbitration.
const CLASS: u32 = 0x03_0200;

/// What distinguishes one GF100 from another.
#[derive(Clone)]
pub struct Gf100Config {
    /// PCI device id. Drivers tell the chip by its registers.
    pub device_id: u16,
    /// PCI revision.
    pub revision: u8,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
    /// VBIOS image; `None` builds one.
    pub vbios: Option<Vec<u8>>,
    /// Time for PTIMER.
    pub clock: Arc<dyn Clock>,
}

impl Default for Gf100Config {
    fn default() -> Self {
        Self {
            device_id: 0x06c0,
            revision: 0xa3,
            subsystem_vendor: VENDOR,
            subsystem: 0x0001,
            vbios: None,
            clock: Arc::new(MonotonicClock::default()),
        }
    }
}

impl std::fmt::Debug for Gf100Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gf100Config").field("device_id", &self.device_id).finish_non_exhaustive()
    }
}

/// Accesses of note since the function was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaceCounters {
    /// Reads of registers that no table lists.
    pub unlisted_reads: u64,
    /// Writes to registers that no table lists.
    pub unlisted_writes: u64,
    /// Writes to registers that drivers may not write.
    pub refused: u64,
    /// CPU accesses through BAR1 and BAR3 that had no translation.
    pub window_faults: u64,
    /// Register writes by FECS patch lists whose consequences were dropped.
    pub dropped_patches: u64,
}

/// A GF100 over whatever executes its work.
///
/// Locks, in this order: `order` (one register write with its effects at a time; held while the back is
/// called), then a window (`bar1`, `bar3`; held while the back accesses memory, which neither blocks nor calls
/// back), then the units (inside [`Face`]; never held while the back is called). Events from the back take
/// the units' lock only. Reads take no `order`; BAR1 and BAR3 data takes the window's lock alone, PRAMIN none.
pub struct Gf100Function<B: EngineBackend + ?Sized> {
    backend: Arc<B>,
    face: Arc<Face>,
    order: Mutex<()>,
    bar1: Mutex<Window>,
    bar3: Mutex<Window>,
    alarm: Mutex<Alarm>,
    vbios: Box<[u8]>,
}

impl<B: EngineBackend + ?Sized> std::fmt::Debug for Gf100Function<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gf100Function").field("face", &self.face).finish_non_exhaustive()
    }
}

/// The back's memory, as page walks see it.
struct Memory<'a, B: ?Sized>(&'a B);

impl<B: EngineBackend + ?Sized> PhysicalMemory for Memory<'_, B> {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.0.read_memory(address, data).is_ok()
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        self.0.write_memory(address, data).is_ok()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks panics; a poisoned one is as good as before.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn regions() -> RegionTable {
    let memory = |kind, size| RegionInfo { kind, size };
    [
        memory(RegionKind::Memory32, BAR0_SIZE),
        memory(RegionKind::Memory64Prefetch, BAR1_SIZE),
        RegionInfo::ABSENT,
        memory(RegionKind::Memory64Prefetch, BAR3_SIZE),
        RegionInfo::ABSENT,
        memory(RegionKind::Io, BAR5_SIZE),
        RegionInfo::ABSENT,
        memory(RegionKind::Config, CONFIG_SIZE as u64),
    ]
}

impl<B: EngineBackend + ?Sized> Gf100Function<B> {
    /// A GF100 in its reset state, connected to `backend`'s events.
    ///
    /// # Errors
    /// The configuration space cannot be built.
    pub fn new(backend: Arc<B>, config: Gf100Config) -> Result<Self, BuildError> {
        let identity = Identity {
            vendor: VENDOR,
            device: config.device_id,
            revision: config.revision,
            class: CLASS,
            subsystem_vendor: config.subsystem_vendor,
            subsystem: config.subsystem,
        };
        let pcie = Capability::PcieEndpoint { link_speed: 2, link_width: 16, function_level_reset: true };
        let space = ConfigSpaceBuilder::new(identity, regions())
            .capability(PM_CAPABILITY, Capability::PowerManagement)
            .capability(MSI_CAPABILITY, Capability::Msi)
            .capability(PCIE_CAPABILITY, pcie)
            .build()?;
        let board = vbios::BoardId { vendor: VENDOR, device: config.device_id, class: CLASS };
        let vbios = config.vbios.unwrap_or_else(|| vbios::build(board).to_vec());
        let face = Arc::new(Face::new(Registers::new(space, backend.vram_size()), config.clock));
        backend.connect_events(face.clone());
        Ok(Self {
            backend,
            face,
            order: Mutex::new(()),
            bar1: Mutex::new(Window::default()),
            bar3: Mutex::new(Window::default()),
            alarm: Mutex::new(Alarm::default()),
            vbios: vbios.into_boxed_slice(),
        })
    }

    /// What executes behind the registers.
    pub fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// Accesses of note.
    pub fn counters(&self) -> FaceCounters {
        let file = self.face.peek().counters();
        FaceCounters {
            unlisted_reads: file.unlisted_reads,
            unlisted_writes: file.unlisted_writes,
            refused: file.refused,
            window_faults: self.face.window_faults(),
            dropped_patches: self.face.dropped_patches(),
        }
    }

    fn window(&self, window: WindowId) -> &Mutex<Window> {
        match window {
            WindowId::Bar1 => &self.bar1,
            WindowId::Bar3 => &self.bar3,
        }
    }

    fn memory(&self) -> Memory<'_, B> {
        Memory(&*self.backend)
    }

    fn read_window(&self, window: WindowId, offset: u64, data: &mut [u8]) {
        let result = locked(self.window(window)).read(offset, data, &self.memory());
        if let Err(fault) = result {
            data.fill(0xff);
            self.face.window_fault(window, &fault);
        }
    }

    fn write_window(&self, window: WindowId, offset: u64, data: &[u8]) {
        let result = locked(self.window(window)).write(offset, data, &self.memory());
        match result {
            Err(fault) => self.face.window_fault(window, &fault),
            Ok(()) if window == WindowId::Bar1 => self.doorbell(offset, data),
            Ok(()) => {}
        }
    }

    /// A store to GP_PUT in the USERD poll area is a doorbell.
    fn doorbell(&self, offset: u64, data: &[u8]) {
        let Some(inside) = self.face.doorbell_area().and_then(|area| offset.checked_sub(area)) else {
            return;
        };
        let Ok(channel) = u16::try_from(inside / ramin::USERD_SIZE) else { return };
        if channel >= CHANNELS {
            return;
        }
        // Position of GP_PUT inside the data; narrower stores are none.
        let within = inside % ramin::USERD_SIZE;
        let at = ramin::USERD_GP_PUT.checked_sub(within).and_then(|at| usize::try_from(at).ok());
        let word = at.and_then(|at| data.get(at..)?.first_chunk::<4>());
        if let Some(word) = word {
            self.backend.doorbell(channel, u32::from_le_bytes(*word));
        }
    }

    fn pramin(&self, offset: u64) -> Option<PhysicalAddress> {
        let start = window_start(self.face.bar0_window());
        let inside = offset.checked_sub(PRAMIN.start)?;
        Some(PhysicalAddress { address: start.address.checked_add(inside)?, ..start })
    }

    fn read_bar0(&self, offset: u64, data: &mut [u8]) {
        if PRAMIN.contains(&offset) {
            let target = self.pramin(offset);
            if !target.is_some_and(|target| self.memory().read(target, data)) {
                data.fill(0xff);
            }
        } else if PROM.contains(&offset) {
            let start = usize::try_from(offset - PROM.start).unwrap_or(usize::MAX);
            for (byte, at) in data.iter_mut().zip(start..) {
                *byte = self.vbios.get(at).copied().unwrap_or(0xff);
            }
        } else {
            let mut rest = data;
            for lane in lanes(offset, rest.len()) {
                let (part, later) = rest.split_at_mut(lane.len().min(rest.len()));
                let (result, notice) = {
                    let mut units = self.face.peek();
                    (units.read(lane.reg, self.face.clock()), units.take_notice())
                };
                tell_unlisted(notice);
                lane.store(self.resolve(result), part);
                rest = later;
            }
        }
    }

    /// The value of a register read, with what only the back knows.
    fn resolve(&self, result: ReadResult) -> u32 {
        match result {
            ReadResult::Value(value) => value,
            ReadResult::EngineStatus(engine) => engine_status(self.backend.engine_status(engine)),
            ReadResult::GraphicsBusy => {
                let status = self.backend.engine_status(Engine::Graphics);
                u32::from(status.busy || status.switching)
            }
            ReadResult::PreemptStatus(channel) => channel | u32::from(self.backend.preempt_pending()) << 20,
        }
    }

    fn write_bar0(&self, offset: u64, data: &[u8]) {
        if PRAMIN.contains(&offset) {
            if let Some(target) = self.pramin(offset) {
                // What has no memory behind it is lost, as on the bus.
                let _ = self.memory().write(target, data);
            }
            return;
        }
        if PROM.contains(&offset) {
            return;
        }
        let order = locked(&self.order);
        let mut effects = Vec::new();
        let mut rest = data;
        for lane in lanes(offset, data.len()) {
            let (part, later) = rest.split_at(lane.len().min(rest.len()));
            let notice = {
                let mut units = self.face.lock();
                units.write(lane.reg, lane.word(part), self.face.clock(), &mut effects);
                units.take_notice()
            };
            tell_unlisted(notice);
            for effect in effects.drain(..) {
                self.perform(effect, &order);
            }
            rest = later;
        }
    }

    fn perform(&self, effect: Effect, order: &MutexGuard<'_, ()>) {
        match effect {
            Effect::FifoState(state) => self.backend.set_fifo_state(state),
            Effect::LargePages { is_64k } => {
                let large_pages = LargePages::from_64k(is_64k);
                locked(&self.bar1).set_large_pages(large_pages);
                locked(&self.bar3).set_large_pages(large_pages);
            }
            Effect::Flush { target, hub_only } => self.flush(target, hub_only),
            Effect::BindWindow(window, block) => {
                let mut window = locked(self.window(window));
                match block {
                    WindowBlock::Physical => window.bind_physical(),
                    WindowBlock::Instance(instance) => window.bind_instance(instance, &self.memory()),
                }
            }
            Effect::BindChannel(channel, instance) => self.backend.bind_channel(channel, instance),
            Effect::EnableChannel(channel, enabled) => self.backend.enable_channel(channel, enabled),
            Effect::CommitRunlist(list, count) => {
                self.backend.commit_runlist(list, count);
                self.face.runlist_done();
            }
            Effect::Preempt(channel) => self.backend.preempt_channel(channel),
            Effect::BlockRunlist(blocked) => self.backend.block_runlist(blocked),
            Effect::SaveGraphics(instance) => self.backend.save_graphics_context(instance),
            Effect::BindGraphics(instance) => self.backend.bind_graphics_context(instance),
            Effect::ResetEngines(engines) => self.backend.reset_engines(engines),
            Effect::TriggerFault { engine, unit } => {
                self.face.triggered_fault(unit, self.backend.engine_status(engine).channel);
            }
            Effect::AlarmChanged => {
                let delay = self.face.peek().alarm_in(self.face.clock());
                locked(&self.alarm).set(&self.face, delay.map(Duration::from_nanos));
            }
            Effect::FunctionReset => self.reset_ordered(order),
        }
    }

    fn flush(&self, target: FlushTarget, hub_only: bool) {
        match target {
            FlushTarget::Directory(directory) => {
                locked(&self.bar1).flush(directory);
                locked(&self.bar3).flush(directory);
                self.backend.flush_tlb(FlushScope { page_directory: directory, hub_only });
            }
            FlushTarget::All => {
                locked(&self.bar1).flush_all();
                locked(&self.bar3).flush_all();
                for page_directory in self.page_directories() {
                    self.backend.flush_tlb(FlushScope { page_directory, hub_only });
                }
            }
        }
    }

    /// The page directories of all bound channels, each once.
    fn page_directories(&self) -> Vec<PhysicalAddress> {
        let instances: Vec<_> = self.face.lock().pfifo().instances().collect();
        let mut directories: Vec<_> = instances
            .into_iter()
            .filter_map(|instance| {
                let address = instance.address.checked_add(ramin::PAGE_DIRECTORY_LO)?;
                let mut raw = [0; 8];
                let read = self.memory().read(PhysicalAddress { address, ..instance }, &mut raw);
                decode_directory(u64::from_le_bytes(raw)).filter(|_| read)
            })
            .collect();
        directories.sort_unstable();
        directories.dedup();
        directories
    }

    /// Function reset; the caller holds `order`.
    fn reset_ordered(&self, _order: &MutexGuard<'_, ()>) {
        self.backend.reset();
        self.face.lock().reset();
        locked(&self.bar1).reset();
        locked(&self.bar3).reset();
        locked(&self.alarm).set(&self.face, None);
        self.face.found_again();
        self.backend.set_fifo_state(FifoState::default());
    }

    fn limit(region: Region) -> u64 {
        let index = usize::try_from(region.index()).unwrap_or(usize::MAX);
        regions().get(index).map_or(0, |info| info.size)
    }
}

/// Says once that a driver uses registers that nobody described.
fn tell_unlisted(notice: Option<Reg>) {
    if let Some(Reg(offset)) = notice {
        log::info!(
            "The driver uses registers that no table lists, first {offset:#08x}: they are plain storage"
        );
    }
}

/// PFIFO's status register of an engine.
fn engine_status(status: EngineStatus) -> u32 {
    /// The engine executes.
    const BUSY: u32 = 1 << 28;
    /// A context is being saved, or loaded.
    const SWITCHING: u32 = 1 << 20 | 1 << 12;
    let channel = status.channel.map_or(0, |channel| u32::from(channel) & 0x7f);
    let busy = if status.busy || status.switching { BUSY } else { 0 };
    let switching = if status.switching { SWITCHING } else { 0 };
    channel | busy | switching
}

impl<B: EngineBackend + ?Sized> PciFunction for Gf100Function<B> {
    fn regions(&self) -> RegionTable {
        regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        check(region, offset, data.len(), Self::limit(region))?;
        match region {
            Region::Config => self.face.peek().read_config_space(offset, data)?,
            // A device that is gone does not answer: the bus reads ones.
            Region::Bar(_) if self.face.is_lost() => data.fill(0xff),
            Region::Bar(0) => self.read_bar0(offset, data),
            Region::Bar(1) => self.read_window(WindowId::Bar1, offset, data),
            Region::Bar(3) => self.read_window(WindowId::Bar3, offset, data),
            Region::Bar(_) | Region::Rom => data.fill(0),
        }
        Ok(())
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        check(region, offset, data.len(), Self::limit(region))?;
        match region {
            Region::Config => {
                let order = locked(&self.order);
                let mut effects = Vec::new();
                self.face.lock().write_config_space(offset, data, self.face.clock(), &mut effects)?;
                for effect in effects {
                    self.perform(effect, &order);
                }
            }
            Region::Bar(_) if self.face.is_lost() => {}
            Region::Bar(0) => self.write_bar0(offset, data),
            Region::Bar(1) => self.write_window(WindowId::Bar1, offset, data),
            Region::Bar(3) => self.write_window(WindowId::Bar3, offset, data),
            Region::Bar(_) | Region::Rom => {}
        }
        Ok(())
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        self.backend.dma_map(mapping)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.backend.dma_unmap(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.backend.dma_unmap_all();
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.face.lock().output().connect(sink);
    }

    fn reset(&self) {
        self.reset_ordered(&locked(&self.order));
    }

    fn share(&self, region: Region, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        let unsupported = || std::io::Error::from(std::io::ErrorKind::Unsupported);
        let fits = offset.checked_add(size).is_some_and(|end| end <= BAR1_SIZE);
        if region != Region::Bar(1) || !fits || size == 0 || (offset | size) & 0xfff != 0 {
            return Err(unsupported());
        }
        let mut runs: Vec<(u64, u64)> = Vec::new();
        {
            let mut window = locked(&self.bar1);
            for address in (offset..offset.saturating_add(size)).step_by(0x1000) {
                let target = window
                    .translate(address, AccessKind::Write, &self.memory())
                    .map_err(|fault| std::io::Error::other(format!("No memory to share: {fault:?}")))?;
                if target.aperture != Aperture::Vram {
                    return Err(unsupported());
                }
                match runs.last_mut() {
                    Some((start, length)) if start.checked_add(*length) == Some(target.address) => {
                        *length = length.saturating_add(0x1000);
                    }
                    _ => runs.push((target.address, 0x1000)),
                }
            }
        }
        let mut shared = Vec::new();
        for (start, length) in runs {
            shared.extend(self.backend.share_vram(start, length)?);
        }
        Ok(shared)
    }
}
