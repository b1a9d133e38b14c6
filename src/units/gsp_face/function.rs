//! The PCI function: units, windows, GSP and back put together.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::config::{self, GspFaceConfig, regions};
use super::core::head_access::HeadView;
use super::core::{Core, GspFaceState, Head, Parts};
use super::effect::Effect;
use super::frames::{Blanks, FrameThread};
use super::hal::Hal;
use super::later::{GoesOn, Worker};
use super::memory::{TableMemory, VramMemory};
use super::registers::Registers;
use crate::display::Display;
use crate::{DriverCounters, FaceCounters, RestoreError};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::registers::Reg;
use gpuvmk_gsp::GspConfig;
use gpuvmk_mmio_trap::access::{Word, check};
use gpuvmk_mmio_trap::aperture::WindowFault;
use gpuvmk_pci::config_space::BuildError;
use gpuvmk_pci::{
    AccessError, CardUse, CoalescableWrite, DirectMap, DirectWindow, DmaError, DmaMapping, InterruptSink,
    MessageOwner, PciFunction, PlainMemory, QueueEvents, Region, RegionTable, RegionWatcher, SharedMemory,
    SharedRegions,
};

/// A GPU with GSP over whatever executes its work.
///
/// Which locks there are, and how threads meet: see [`super::core`].
pub struct GspFunction<B: GspBackend> {
    pub(super) backend: Arc<B>,
    pub(super) core: Arc<Core<B>>,
    /// Goes on with channels of the driver's kernel; whom for.
    worker: Worker,
    who: Weak<dyn GoesOn>,
    /// Begins the frames of its head; whose.
    frames: FrameThread,
    whose: Weak<dyn Blanks>,
}

impl<B: GspBackend> std::fmt::Debug for GspFunction<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GspFunction").field("face", &self.core.face).finish_non_exhaustive()
    }
}

impl<B: GspBackend + 'static> GspFunction<B> {
    /// A function in its reset state, connected to `backend`'s events.
    ///
    /// # Errors
    /// The configuration space cannot be built.
    pub fn new(backend: Arc<B>, config: GspFaceConfig) -> Result<Self, BuildError> {
        let space = config::space(&config)?;
        let hal = config.hal;
        let registers = Registers::new(hal, space, backend.vram_size(), backend.engines());
        let gsp = Self::gsp_config(&backend, &config);
        let display = config.head().map(|head| (head.clone(), Display::new(head.edid())));
        let core = Core::new(Arc::downgrade(&backend), hal, gsp, registers, config.clock, display);
        Ok(Self::connected(backend, core))
    }

    /// A function in a saved state, connected to `backend`'s events. `config` is that of the function that
    /// was saved, with any clock: time goes on from where it was.
    ///
    /// The back gets the position of BAR2, the number of objects and the driver's interest in notifications.
    /// All other state that a driver's requests gave it must be in it already, from its own saved state or by
    /// calls of the caller: memory and its DMA mappings, and the channels, in the slots that the state names,
    /// with their objects and whether they are scheduled (unless all are held back).
    ///
    /// No sink is connected to its interrupts, and no watcher to its windows. A sink that is connected gets
    /// the line's level. A message that was sent is not sent again. Stopped channels that were not reported
    /// to the driver are reported now. Channels of the driver's kernel go on.
    ///
    /// # Errors
    /// See [`RestoreError`]. The back was not called then.
    pub fn from_state(
        backend: Arc<B>,
        config: GspFaceConfig,
        state: &GspFaceState,
    ) -> Result<Self, RestoreError> {
        let space = config::space_of(&config, &state.registers.config)?;
        let gsp = Self::gsp_config(&backend, &config);
        let hal = config.hal;
        let head = config.head().cloned();
        let around = (config.clock, head.as_ref());
        let parts =
            Parts::from_state(state, hal, gsp, space, around).map_err(|error| error.within(hal.name))?;
        let core = Core::of(Arc::downgrade(&backend), hal, gsp, parts);
        let function = Self::connected(backend, core);
        let (back, core) = (&*function.backend, &*function.core);
        core.tell_changed(back, 3);
        core.tell_objects(back);
        function.perform(Effect::TellInterest);
        core.deliver();
        function.start_worker();
        core.go_on_later();
        Ok(function)
    }

    /// The function with this core, connected to `backend`'s events.
    fn connected(backend: Arc<B>, core: Core<B>) -> Self {
        let core = Arc::new(core);
        backend.connect_events(core.clone());
        core.interest_tracker.reset(&*backend);
        let who: Weak<dyn GoesOn> = Arc::downgrade(&core) as Weak<dyn GoesOn>;
        let whose: Weak<dyn Blanks> = Arc::downgrade(&core) as Weak<dyn Blanks>;
        let (worker, frames) = (Worker::default(), FrameThread::default());
        Self { backend, core, worker, who, frames, whose }
    }

    /// What GSP knows of a function with this back.
    pub(super) fn gsp_config(backend: &B, config: &GspFaceConfig) -> GspConfig {
        GspConfig {
            hal: config.hal.gsp,
            vram: backend.vram_size(),
            engines: backend.engines(),
            channels: backend.channels(),
            graphics: backend.texture_clusters(),
            objects: config.objects,
            pci: config.identity(),
            uuid: config.uuid,
            has_head: config.head().is_some(),
        }
    }
}

impl<B: GspBackend> GspFunction<B> {
    /// The back that executes behind the registers.
    pub fn backend(&self) -> &Arc<B> {
        &self.backend
    }

    /// All that decides about messages, for searches through every state.
    #[cfg(any(test, feature = "testing"))]
    pub fn interrupt_state(&self) -> String {
        format!("{:?} {:?}", self.core.interest_tracker.current(), self.core.face.lock().interrupt_state())
    }

    /// What its head shows, for those who look; none: it has no head.
    pub fn head(&self) -> Option<Arc<dyn gpuvmk_display::Head>>
    where
        B: 'static,
    {
        self.core.head.as_ref()?;
        Some(Arc::new(HeadView::new(Arc::downgrade(&self.core), Arc::downgrade(&self.backend))))
    }

    /// Accesses of note.
    pub fn counters(&self) -> FaceCounters {
        let (file, boot_errors) = {
            let units = self.core.face.lock();
            (units.counters(), units.boot_errors())
        };
        let head = self.core.head.as_ref();
        let display = head.map(Head::counters).unwrap_or_default();
        let (width, height) = head.and_then(Head::monitor).map_or((0, 0), |mode| {
            let size = mode.size();
            (size.width(), size.height())
        });
        FaceCounters {
            unlisted_reads: file.unlisted_reads,
            unlisted_writes: file.unlisted_writes,
            refused: file.refused,
            window_faults: self.core.window_faults.load(Ordering::Relaxed),
            boot_errors,
            bad_doorbells: self.core.bad_doorbells.load(Ordering::Relaxed),
            dropped_stops: self.core.dropped_stops(),
            display_stops: display.channels_stopped,
            display_refused: display.handles_refused,
            heads: u64::from(self.core.head.is_some()),
            monitor_width: width.into(),
            monitor_height: height.into(),
            ..FaceCounters::default()
        }
    }

    /// True if [`Self::driver_counters`] has changed since the last call of this, and at the first call.
    pub fn take_counters_changed(&self) -> bool {
        self.core.face.counters_changed.take()
    }

    /// What operators may know of the driver. What it asks of GSP counts when GSP has answered: nothing here
    /// waits for GSP or for the back.
    pub fn driver_counters(&self) -> DriverCounters {
        DriverCounters { face: self.counters(), gsp: self.core.asked_of_gsp(), ..DriverCounters::default() }
    }

    /// The state to save, taken at one point between events of the back. Notifications that the back has held
    /// back are delivered first, and are in it. The caller makes sure that no access is under way: the
    /// guest's processors stand still, and the front end has finished their accesses.
    pub fn state(&self) -> GspFaceState {
        self.core.state(&self.backend)
    }

    /// The virtual GSP's counters since the last function reset.
    pub fn gsp_counters(&self) -> gpuvmk_gsp::Counters {
        self.core.gsp_counters()
    }

    /// The driver rang for its command queue.
    pub(super) fn commands(&self) {
        self.core.commands(&self.backend);
        self.start_worker();
    }

    /// Sees to it that channels of the driver's kernel go on by themselves, if it has some.
    fn start_worker(&self) {
        if !self.core.later.runs() && self.core.has_kernel_channels() {
            self.worker.start(&self.core.later, Weak::clone(&self.who));
        }
    }

    /// Writes a register of the display engine; false: it is not of it.
    pub(super) fn write_head(&self, reg: Reg, word: Word) -> bool {
        let Some(is_awaited) = self.core.write_head(&self.backend, reg, word) else { return false };
        if is_awaited && let Some(head) = &self.core.head {
            self.frames.start(&head.frames, Weak::clone(&self.whose));
        }
        true
    }

    pub(super) fn window_fault(&self, bar: u8, fault: &WindowFault) {
        let before = self.core.window_faults.fetch_add(1, Ordering::Relaxed);
        self.core.face.counters_changed.note();
        if before == 0 {
            log::info!(
                "A CPU access ({:?}) to BAR{bar} at {:#x} has no translation: {:?}",
                fault.access,
                fault.address,
                fault.reason
            );
        }
    }

    pub(super) fn tables(&self) -> TableMemory<'_, B> {
        TableMemory(&self.backend)
    }

    pub(super) fn vram(&self) -> VramMemory<'_, B> {
        VramMemory(&self.backend)
    }

    fn limit(&self, region: Region) -> u64 {
        let index = usize::try_from(region.index()).unwrap_or(usize::MAX);
        regions(&self.hal().pci).get(index).map_or(0, |info| info.size)
    }

    /// What a guest stored where a page is at several places is at all of them.
    fn settle_windows(&self) {
        if let Some(windows) = self.backend.windows() {
            windows.settle();
        }
    }

    pub(super) fn hal(&self) -> &'static Hal {
        self.core.hal
    }
}

impl<B: GspBackend> Drop for GspFunction<B> {
    fn drop(&mut self) {
        self.core.close();
        self.worker.stop(&self.core.later);
        if let Some(head) = &self.core.head {
            self.frames.stop(&head.frames);
        }
    }
}

impl<B: GspBackend> PciFunction for GspFunction<B> {
    fn regions(&self) -> RegionTable {
        regions(&self.hal().pci)
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        check(region, offset, data.len(), self.limit(region))?;
        self.settle_windows();
        match region {
            Region::Config => self.core.face.lock().read_config_space(offset, data)?,
            // A device that is gone does not answer: the bus reads ones.
            Region::Bar(_) if self.core.face.is_lost() => data.fill(0xff),
            Region::Bar(0) => self.read_bar0(offset, data),
            Region::Bar(1) => self.read_bar1(offset, data),
            Region::Bar(3) => self.read_bar2(offset, data),
            Region::Bar(_) | Region::Rom => data.fill(0),
        }
        Ok(())
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        check(region, offset, data.len(), self.limit(region))?;
        self.settle_windows();
        match region {
            Region::Config => {
                let mut effects = Vec::new();
                self.core.interest_tracker.deliver(&*self.backend);
                self.core.face.lock().write_config_space(offset, data, &mut effects)?;
                for effect in effects {
                    self.perform(effect);
                }
            }
            Region::Bar(_) if self.core.face.is_lost() => {}
            Region::Bar(0) => self.write_bar0(offset, data),
            Region::Bar(1) => self.write_bar1(offset, data),
            Region::Bar(3) => self.write_bar2(offset, data),
            Region::Bar(_) | Region::Rom => {}
        }
        self.settle_windows();
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
        self.core.face.lock().output().connect(sink);
    }

    fn reset(&self) {
        self.core.reset(&self.backend);
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

impl<B: GspBackend> DirectMap for GspFunction<B> {
    fn plain_memory(&self, region: Region) -> std::io::Result<Option<PlainMemory>> {
        let at_start = |memory| PlainMemory { offset: 0, memory };
        match region {
            Region::Bar(0) => self.core.identity.share(),
            Region::Bar(3) => {
                self.backend.windows().map(|windows| windows.bar3_memory().map(at_start)).transpose()
            }
            _ => Ok(None),
        }
    }

    fn show(&self, region: Region, offset: u64, size: u64, visit: &mut dyn FnMut(DirectWindow<'_>)) {
        self.show_window(region, offset, size, visit);
    }

    fn coalescable_writes(&self) -> Vec<CoalescableWrite> {
        self.core.coalescable_writes()
    }

    fn is_posted(&self, region: Region, offset: u64, size: usize) -> bool {
        region == Region::Bar(0) && offset == u64::from(self.hal().doorbell.register.0) && size == 4
    }

    fn watch(&self, watcher: Option<Arc<dyn RegionWatcher>>) {
        self.core.watcher.connect(watcher);
    }
}

impl<B: GspBackend> SharedRegions for GspFunction<B> {
    fn share(&self, region: Region, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.share_bar1(region, offset, size)
    }

    fn renew(&self, _: Region, _: u64, _: u64) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
