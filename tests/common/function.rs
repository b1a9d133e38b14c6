//! A PCI function whose BARs are plain memory, and which writes down what happens to it.

use gpuvmk::pci::config_space::{Capability, ConfigSpace, ConfigSpaceBuilder, Identity};
use gpuvmk::pci::dma::DmaSpace;
use gpuvmk::pci::{
    AccessError, CardUse, CoalescableWrite, DirectMap, DirectWindow, DmaError, DmaMapping, InterruptSink,
    MessageOwner, PciFunction, PlainMemory, QueueEvents, Region, RegionInfo, RegionKind, RegionTable,
    RegionWatcher, SharedMemory, SharedRegions,
};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

pub const BAR0_SIZE: u64 = 0x1000;
pub const BAR1_SIZE: u64 = 0x20_0000;
/// A read or write of BAR 0 at this offset finds the device lost.
pub const LOST: u64 = 0xff0;

/// A word of BAR 0 whose writes nobody waits for.
pub const BELL: u64 = 0xfe0;

/// What happened, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Read(Region, u64, usize),
    Write(Region, u64, Vec<u8>),
    Reset,
    Connected(bool),
    UnmappedAll,
}

pub struct TestFunction {
    bars: Mutex<[Vec<u8>; 2]>,
    config: Mutex<ConfigSpace>,
    pub dma: DmaSpace,
    sink: Mutex<Option<Arc<dyn InterruptSink>>>,
    events: Mutex<Vec<Event>>,
    /// Turned off by benchmarks.
    recording: bool,
    /// How long a reset takes.
    pub slow: Mutex<std::time::Duration>,
    /// Memory behind the second page of BAR 1, if that may be mapped.
    pub plain: Mutex<Option<OwnedFd>>,
    /// Writes that may be late.
    pub late: Mutex<Vec<CoalescableWrite>>,
    /// Writes to [`BELL`] wait for this.
    pub bell: Mutex<()>,
    watcher: Mutex<Option<Arc<dyn RegionWatcher>>>,
}

impl std::fmt::Debug for TestFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestFunction").finish_non_exhaustive()
    }
}

impl TestFunction {
    pub fn new() -> Self {
        let identity = Identity {
            vendor: 0x10de,
            device: 0x06c0,
            revision: 0xa3,
            class: 0x03_02_00,
            subsystem_vendor: 0x10de,
            subsystem: 1,
        };
        let config = ConfigSpaceBuilder::new(identity, table())
            .capability(0x60, Capability::PowerManagement)
            .capability(0x68, Capability::Msi)
            .build()
            .unwrap();
        Self {
            bars: Mutex::new([vec![0; BAR0_SIZE as usize], vec![0; BAR1_SIZE as usize]]),
            config: Mutex::new(config),
            dma: DmaSpace::new(),
            sink: Mutex::new(None),
            events: Mutex::new(Vec::new()),
            recording: true,
            slow: Mutex::default(),
            plain: Mutex::new(None),
            late: Mutex::default(),
            bell: Mutex::default(),
            watcher: Mutex::default(),
        }
    }

    /// One that writes nothing down.
    pub fn silent() -> Self {
        Self { recording: false, ..Self::new() }
    }

    fn note(&self, event: Event) {
        if self.recording {
            self.events.lock().unwrap().push(event);
        }
    }

    /// What happened since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// What happened since the last call, without reads and writes of configuration space.
    pub fn take_bar_events(&self) -> Vec<Event> {
        let config = |event: &Event| {
            matches!(event, Event::Read(Region::Config, ..) | Event::Write(Region::Config, ..))
        };
        self.take_events().into_iter().filter(|event| !config(event)).collect()
    }

    pub fn set_intx(&self, asserted: bool) {
        self.with_sink(|sink| sink.set_intx(asserted));
    }

    pub fn fire_msi(&self) {
        self.with_sink(|sink| sink.fire_msi(0));
    }

    pub fn say_late_writes_changed(&self) {
        self.watcher.lock().unwrap().clone().unwrap().coalescable_writes_changed();
    }

    pub fn is_connected(&self) -> bool {
        self.sink.lock().unwrap().is_some()
    }

    fn with_sink(&self, act: impl FnOnce(&dyn InterruptSink)) {
        act(self.sink.lock().unwrap().as_deref().expect("no interrupt sink"));
    }

    fn check(
        region: Region,
        offset: u64,
        size: usize,
    ) -> Result<(usize, std::ops::Range<usize>), AccessError> {
        let (bar, limit) = match region {
            Region::Bar(0) => (0, BAR0_SIZE),
            Region::Bar(1) => (1, BAR1_SIZE),
            _ => return Err(AccessError::NoRegion(region)),
        };
        if bar == 0 && offset == LOST {
            return Err(AccessError::DeviceLost);
        }
        if offset.checked_add(size as u64).is_none_or(|end| end > limit) {
            return Err(AccessError::OutOfRange { region, offset, size, limit });
        }
        let start = usize::try_from(offset).unwrap();
        Ok((bar, start..start + size))
    }
}

fn table() -> RegionTable {
    let mut table = [RegionInfo::ABSENT; 8];
    table[0] = RegionInfo { kind: RegionKind::Memory32, size: BAR0_SIZE };
    table[1] = RegionInfo { kind: RegionKind::Memory64Prefetch, size: BAR1_SIZE };
    table[7] = RegionInfo { kind: RegionKind::Config, size: 4096 };
    table
}

impl PciFunction for TestFunction {
    fn regions(&self) -> RegionTable {
        table()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.note(Event::Read(region, offset, data.len()));
        if region == Region::Config {
            return self.config.lock().unwrap().read(offset, data);
        }
        let (bar, range) = Self::check(region, offset, data.len())?;
        data.copy_from_slice(&self.bars.lock().unwrap()[bar][range]);
        Ok(())
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        let _turn = self.is_posted(region, offset, data.len()).then(|| self.bell.lock().unwrap());
        self.note(Event::Write(region, offset, data.to_vec()));
        if region == Region::Config {
            return self.config.lock().unwrap().write(offset, data).map(|_| ());
        }
        let (bar, range) = Self::check(region, offset, data.len())?;
        self.bars.lock().unwrap()[bar][range].copy_from_slice(data);
        Ok(())
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        self.dma.map(mapping)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.dma.unmap(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.note(Event::UnmappedAll);
        self.dma.unmap_all();
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.note(Event::Connected(sink.is_some()));
        *self.sink.lock().unwrap() = sink;
    }

    fn reset(&self) {
        self.note(Event::Reset);
        std::thread::sleep(*self.slow.lock().unwrap());
        self.bars.lock().unwrap().iter_mut().for_each(|bar| bar.fill(0));
        self.config.lock().unwrap().reset();
    }

    fn card_use(&self) -> Option<CardUse> {
        None
    }

    fn most_dma_ranges(&self) -> usize {
        gpuvmk::pci::dma::MAX_MAPPINGS
    }

    fn client_gone(&self) {}

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
        None
    }
}

impl DirectMap for TestFunction {
    fn plain_memory(&self, region: Region) -> std::io::Result<Option<PlainMemory>> {
        let plain = self.plain.lock().unwrap();
        let Some(fd) = plain.as_ref().filter(|_| region == Region::Bar(1)) else { return Ok(None) };
        let memory = SharedMemory { fd: fd.try_clone()?, offset: 0x3000, size: 0x1000 };
        Ok(Some(PlainMemory { offset: 0x1000, memory }))
    }

    fn show(&self, _: Region, _: u64, _: u64, _: &mut dyn FnMut(DirectWindow<'_>)) {}

    fn coalescable_writes(&self) -> Vec<CoalescableWrite> {
        self.late.lock().unwrap().clone()
    }

    fn is_posted(&self, region: Region, offset: u64, size: usize) -> bool {
        (region, offset, size) == (Region::Bar(0), BELL, 4)
    }

    fn watch(&self, watcher: Option<Arc<dyn RegionWatcher>>) {
        *self.watcher.lock().unwrap() = watcher;
    }
}
