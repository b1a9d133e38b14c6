//! The PCI function: units, windows and back put together.

mod bar0;
mod config;
mod state;
mod windows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::alarm::Alarm;
use super::effect::WindowId;
use super::face::Face;
use super::pbus::window_start;
use super::registers::Registers;
use crate::interest_tracker::InterestTracker;
use crate::{DriverCounters, FaceCounters};
use config::{CLASS, PRAMIN, VENDOR, regions};
use gpuvmk_backend::{EngineBackend, FifoState};
use gpuvmk_mmio_trap::access::check;
use gpuvmk_mmio_trap::aperture::Window;
use gpuvmk_mmio_trap::aperture::fermi::FermiTables;
use gpuvmk_pci::config_space::BuildError;
use gpuvmk_pci::{
    AccessError, CardUse, CoalescableWrite, DirectMap, DirectWindow, DmaError, DmaMapping, InterruptSink,
    MessageOwner, PciFunction, PlainMemory, QueueEvents, Region, RegionTable, RegionWatcher, SharedMemory,
    SharedRegions, vbios,
};

pub use config::Gf100Config;
pub use state::Gf100State;

/// A GF100 over whatever executes its work.
///
/// Locks, in this order:
///
/// 1. `order`: one register write with its effects at a time; held while the back is called.
/// 2. that of `interest_tracker`: held while the back is called, which sends events.
/// 3. a window (`bar1`, `bar3`): held while the back accesses memory, which neither blocks nor calls back.
/// 4. the units (inside [`Face`]): never held while the back is called.
///
/// Events from the back take the units' lock only. Reads take no `order`; BAR1 and BAR3 data takes the
/// window's lock alone, PRAMIN none. Only [`Self::state`] holds both windows at once, `bar1` first.
pub struct Gf100Function<B: EngineBackend + ?Sized> {
    backend: Arc<B>,
    face: Arc<Face>,
    interest_tracker: InterestTracker,
    order: Mutex<()>,
    bar1: Mutex<Window<FermiTables>>,
    bar3: Mutex<Window<FermiTables>>,
    alarm: Mutex<Alarm>,
    vbios: Box<[u8]>,
}

impl<B: EngineBackend + ?Sized> std::fmt::Debug for Gf100Function<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gf100Function").field("face", &self.face).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks panics; a poisoned one is as good as before.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: EngineBackend + ?Sized> Gf100Function<B> {
    /// A GF100 in its reset state, connected to `backend`'s events.
    ///
    /// # Errors
    /// The configuration space cannot be built.
    pub fn new(backend: Arc<B>, config: Gf100Config) -> Result<Self, BuildError> {
        let registers = Registers::new(config::space(&config)?, backend.vram_size());
        let face = Face::new(registers, config.clock.clone());
        Ok(Self::connected(backend, config, face, [Window::default(), Window::default()]))
    }

    /// The function with this face and these windows, BAR1 and BAR3, connected to `backend`'s events.
    fn connected(
        backend: Arc<B>,
        config: Gf100Config,
        face: Face,
        [bar1, bar3]: [Window<FermiTables>; 2],
    ) -> Self {
        let board = vbios::BoardId { vendor: VENDOR, device: config.device_id, class: CLASS };
        let vbios = config.vbios.unwrap_or_else(|| vbios::build(board).to_vec());
        let face = Arc::new(face);
        backend.connect_events(face.clone());
        let function = Self {
            backend,
            face,
            interest_tracker: InterestTracker::default(),
            order: Mutex::new(()),
            bar1: Mutex::new(bar1),
            bar3: Mutex::new(bar3),
            alarm: Mutex::new(Alarm::default()),
            vbios: vbios.into_boxed_slice(),
        };
        function.show_pramin(window_start(function.face.bar0_window()));
        function.interest_tracker.reset(&*function.backend);
        function
    }

    /// The back that executes behind the registers.
    pub fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// All that decides about messages, for searches through every state.
    #[cfg(any(test, feature = "testing"))]
    pub fn interrupt_state(&self) -> String {
        format!("{:?} {:?}", self.interest_tracker.current(), self.face.peek().interrupt_state())
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
            ..FaceCounters::default()
        }
    }

    /// True if [`Self::driver_counters`] has changed since the last call of this, and at the first call.
    pub fn take_counters_changed(&self) -> bool {
        self.face.take_counters_changed()
    }

    /// What operators may know of the driver.
    pub fn driver_counters(&self) -> DriverCounters {
        DriverCounters { face: self.counters(), ..DriverCounters::default() }
    }

    /// Function reset; the caller holds `order`.
    fn reset_ordered(&self, _order: &MutexGuard<'_, ()>) {
        let hidden = self.face.watcher().hide();
        self.backend.reset();
        // Late events of the back are dropped with it.
        self.interest_tracker.reset(&*self.backend);
        self.face.lock().reset();
        locked(&self.bar1).reset();
        locked(&self.bar3).reset();
        locked(&self.alarm).set(&self.face, None);
        self.face.found_again();
        drop(hidden);
        if let Some(windows) = self.backend.windows() {
            windows.show_pramin(Some(0));
        }
        self.backend.set_fifo_state(FifoState::default());
    }

    fn limit(region: Region) -> u64 {
        let index = usize::try_from(region.index()).unwrap_or(usize::MAX);
        regions().get(index).map_or(0, |info| info.size)
    }
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
                self.interest_tracker.deliver(&*self.backend);
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

    fn most_dma_ranges(&self) -> usize {
        self.backend.most_dma_ranges()
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.face.lock().output().connect(sink);
    }

    fn reset(&self) {
        self.reset_ordered(&locked(&self.order));
    }

    fn client_gone(&self) {
        if let Some(windows) = self.backend.windows() {
            windows.client_gone();
        }
    }

    fn card_use(&self) -> Option<CardUse> {
        None
    }

    fn direct_map(&self) -> Option<&dyn DirectMap> {
        Some(self)
    }

    fn message_owner(&self) -> Option<&dyn MessageOwner> {
        None
    }

    fn queue_events(&self) -> Option<&dyn QueueEvents> {
        None
    }

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        Some(self)
    }
}

impl<B: EngineBackend + ?Sized> DirectMap for Gf100Function<B> {
    fn plain_memory(&self, region: Region) -> std::io::Result<Option<PlainMemory>> {
        let Some(windows) = self.backend.windows() else { return Ok(None) };
        let (offset, memory) = match region {
            Region::Bar(0) => (PRAMIN.start, windows.pramin_memory()?),
            Region::Bar(3) => (0, windows.bar3_memory()?),
            _ => return Ok(None),
        };
        Ok(Some(PlainMemory { offset, memory }))
    }

    fn show(&self, region: Region, offset: u64, size: u64, visit: &mut dyn FnMut(DirectWindow<'_>)) {
        self.show_window(region, offset, size, visit);
    }

    fn coalescable_writes(&self) -> Vec<CoalescableWrite> {
        Vec::new()
    }

    fn is_posted(&self, region: Region, offset: u64, size: usize) -> bool {
        region == Region::Bar(1) && size == 4 && self.doorbell_of(offset).is_some_and(|(_, at)| at == 0)
    }

    fn watch(&self, watcher: Option<Arc<dyn RegionWatcher>>) {
        self.face.watcher().connect(watcher);
    }
}

impl<B: EngineBackend + ?Sized> SharedRegions for Gf100Function<B> {
    fn share(&self, region: Region, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.share_bar1(region, offset, size)
    }

    fn renew(&self, region: Region, offset: u64, size: u64) -> std::io::Result<()> {
        self.renew_bar1(region, offset, size)
    }
}
