//! A real card as a [`PciFunction`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::bars::Bar;
use super::card::{Card, POWER_MANAGEMENT};
use super::claim::Claim;
use super::dma::Iommu;
use super::interrupts::{Lines, Listener};
use super::open::{self, Interface, OpenError};
use super::reset::{Reset, ResetMethod};
use super::sysfs::{PciDevice, Sysfs};
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_pci::PciAddress;
use gpuvmk_pci::{
    AccessError, Backing, CardUse, CoalescableWrite, DirectMap, DirectWindow, DmaError, DmaMapping,
    InterruptSink, MessageOwner, PciFunction, PlainMemory, QueueEvents, Region, RegionKind, RegionTable,
    RegionWatcher, SharedMemory, SharedRegions, header,
};

/// VFIO's numbers of interrupts (`VFIO_PCI_MSI_IRQ_INDEX`, `VFIO_PCI_ERR_IRQ_INDEX`,
/// `VFIO_PCI_REQ_IRQ_INDEX`).
const IRQ_MSI: u32 = 1;
const IRQ_ERR: u32 = 3;
const IRQ_REQ: u32 = 4;

/// Called once when the card is gone.
type LossCallback = Box<dyn FnOnce() + Send>;

/// The connected interrupts: the thread goes before its lines.
struct Connected {
    _listener: Listener,
    _lines: Lines,
}

/// A card that this process has through VFIO. When it is dropped the card reaches no memory any more, is
/// reset, and is free for others.
pub struct VfioFunction {
    address: PciAddress,
    device: u16,
    interface: Interface,
    // Field order is drop order: what is mapped of the device keeps its file open, and its group could not
    // leave the container.
    bars: [Option<Bar>; 6],
    card: Card,
    regions: RegionTable,
    iommu: Mutex<Iommu>,
    connected: Mutex<Option<Connected>>,
    lost: Arc<AtomicBool>,
    loss_callback: Arc<Mutex<Option<LossCallback>>>,
    rom: OnceLock<Vec<u8>>,
    reads: AtomicU64,
    writes: AtomicU64,
    _claim: Claim,
}

impl std::fmt::Debug for VfioFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VfioFunction")
            .field("address", &self.address)
            .field("interface", &self.interface)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

impl VfioFunction {
    /// Opens a card that `vfio-pci` has, resets it, and maps its BARs.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is open then.
    pub fn open(
        sysfs: &Sysfs,
        device: &PciDevice,
        interface: Option<Interface>,
    ) -> Result<Arc<Self>, OpenError> {
        let address = device.address;
        let opened = open::open(sysfs, device, interface)?;
        let failed = |what: &str, source: Box<dyn std::error::Error + Send + Sync>| OpenError::SetUp {
            address,
            what: what.to_owned(),
            source,
        };
        let reset = Reset::of(&opened.device, device, opened.interface);
        let reset = reset.map_err(|error| failed("the kernel has no way to reset the card", error.into()))?;
        let card = Card { device: opened.device, reset };
        card.reset().map_err(|error| failed("the card cannot be reset", error.into()))?;
        if !card.enable(true) || !card.answers() {
            let gone = "its configuration space does not answer".into();
            return Err(failed("the card was reset and did not come back", gone));
        }
        let regions = Region::ALL.map(|region| card.region(region));
        let mut bars = [const { None }; 6];
        for (number, (bar, info)) in (0u8..).zip(bars.iter_mut().zip(regions)) {
            let index = Region::Bar(number).index();
            let widest = match info.kind {
                RegionKind::Memory32 => 4,
                RegionKind::Memory64Prefetch => 8,
                _ => continue,
            };
            if card.device.get_region_flags(index) & vfio_bindings::bindings::vfio::VFIO_REGION_INFO_FLAG_MMAP
                == 0
            {
                continue;
            }
            let offset = card.device.get_region_offset(index);
            let mapped = Bar::map(card.fd(), offset, info.size, widest);
            *bar = Some(mapped.map_err(|error| failed(&format!("cannot map BAR{number}"), error.into()))?);
        }
        let function = Arc::new(Self {
            address,
            device: device.device,
            interface: opened.interface,
            card,
            regions,
            bars,
            iommu: Mutex::new(Iommu::new(opened.iommu)),
            connected: Mutex::new(None),
            lost: Arc::new(AtomicBool::new(false)),
            loss_callback: Arc::new(Mutex::new(None)),
            rom: OnceLock::new(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            _claim: opened.claim,
        });
        if !function.card.wake(header::capability(function.as_ref(), POWER_MANAGEMENT)) {
            let asleep = "it was told to come to D0".into();
            return Err(failed("the card stays in a power state in which it does nothing", asleep));
        }
        let (interface, way) = (opened.interface, function.reset_method());
        log::info!(
            "{address}: open by {interface:?}, {:04x}:{:04x}, reset by {way:?}",
            device.vendor,
            device.device
        );
        Ok(function)
    }

    /// Replaces the card's ROM by these bytes from now on.
    ///
    /// # Errors
    /// The card's ROM is smaller, and the guest asks the card how large it is; or one is shown already.
    pub fn show_rom(&self, bytes: &[u8]) -> Result<(), String> {
        let size = self.regions.get(Region::Rom.index() as usize).map_or(0, |info| info.size);
        if bytes.len() as u64 > size {
            return Err(format!("it has {} bytes, and the card's ROM {size}", bytes.len()));
        }
        self.rom.set(bytes.to_vec()).map_err(|_| "one is shown already".to_owned())
    }

    /// How it is reset.
    pub fn reset_method(&self) -> ResetMethod {
        self.card.reset.way()
    }

    /// Sets a call that is made once, from another thread, when the kernel wants the card back or its bus
    /// reports it broken. The kernel then waits until its file is closed.
    pub fn when_lost(&self, tell: impl FnOnce() + Send + 'static) {
        *self.loss_callback() = Some(Box::new(tell));
        let mut connected = self.connected();
        if connected.is_none() {
            *connected = self.connect_or_say(None);
        }
    }

    fn loss_callback(&self) -> MutexGuard<'_, Option<LossCallback>> {
        self.loss_callback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connected(&self) -> MutexGuard<'_, Option<Connected>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps other gpuvmks from a card, without opening it.
    ///
    /// # Errors
    /// One has it.
    pub fn claim(device: &PciDevice) -> Result<Claim, OpenError> {
        open::claim(device)
    }

    /// Its PCI device number.
    pub fn device(&self) -> u16 {
        self.device
    }

    /// Through which of VFIO's interfaces it is open.
    pub fn interface(&self) -> Interface {
        self.interface
    }

    /// Asks the kernel for a message as if the card had sent it. False if the card has none, or no sink is
    /// connected.
    pub(super) fn ask_for_message(&self) -> bool {
        self.card.device.trigger_irq(IRQ_MSI, 0).is_ok()
    }

    fn iommu(&self) -> MutexGuard<'_, Iommu> {
        // A thread that panicked left it consistent: each step is one system call.
        self.iommu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, region: Region, offset: u64, size: usize) -> Result<(), AccessError> {
        let info = usize::try_from(region.index()).ok().and_then(|index| self.regions.get(index));
        let limit = info.map_or(0, |info| info.size);
        if limit == 0 {
            return Err(AccessError::NoRegion(region));
        }
        if offset.checked_add(size as u64).is_none_or(|end| end > limit) {
            return Err(AccessError::OutOfRange { region, offset, size, limit });
        }
        if self.lost.load(Ordering::Relaxed) { Err(AccessError::DeviceLost) } else { Ok(()) }
    }

    fn bar(&self, region: Region) -> Option<&Bar> {
        let Region::Bar(number) = region else { return None };
        self.bars.get(usize::from(number))?.as_ref()
    }

    /// The result of an access; the card may be gone.
    fn outcome(&self, done: bool) -> Result<(), AccessError> {
        if done || self.card.answers() {
            // Where the card is there, VFIO refused the access (a ROM that is switched off): it reads as ones
            // and writes nothing.
            return Ok(());
        }
        if !self.lost.swap(true, Ordering::Relaxed) {
            log::error!("{}: the card does not answer any more", self.address);
        }
        Err(AccessError::DeviceLost)
    }
}

impl PciFunction for VfioFunction {
    fn regions(&self) -> RegionTable {
        self.regions
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.check(region, offset, data.len())?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        data.fill(0xff);
        if let Some(rom) = self.rom.get().filter(|_| region == Region::Rom) {
            // Behind it there is nothing, as in a card's.
            let rest = usize::try_from(offset).ok().and_then(|offset| rom.get(offset..)).unwrap_or_default();
            data.iter_mut().zip(rest).for_each(|(byte, shown)| *byte = *shown);
            return Ok(());
        }
        let done = match self.bar(region) {
            Some(bar) => bar.read(offset, data).is_ok(),
            None => self.card.read(region, offset, data),
        };
        // All ones may be a value of a register's.
        self.outcome(done && data.iter().any(|byte| *byte != 0xff))
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        self.check(region, offset, data.len())?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        match self.bar(region) {
            // Stores are posted: whether the card is there, the next load tells.
            Some(bar) => bar.write(offset, data).map_err(|_| AccessError::DeviceLost),
            None => self.outcome(self.card.write(region, offset, data)),
        }
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        if self.lost.load(Ordering::Relaxed) {
            return Err(DmaError::DeviceLost);
        }
        let own = self.iommu().owner();
        let piece = Iommu::prepare(&own, &mapping)?;
        self.iommu().map(mapping.iova, piece)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.iommu().unmap(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.iommu().unmap_all();
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        let mut connected = self.connected();
        if connected.take().is_some() {
            for index in [IRQ_MSI, IRQ_ERR, IRQ_REQ] {
                if let Err(error) = self.card.device.disable_irq(index) {
                    log::debug!("{}: interrupt {index}: {error}", self.address);
                }
            }
        }
        // Without a guest the card must still be given back when it is wanted.
        if sink.is_some() || self.loss_callback().is_some() {
            *connected = self.connect_or_say(sink);
        }
    }

    fn card_use(&self) -> Option<CardUse> {
        let (reads, writes) = (&self.reads, &self.writes);
        let [reads, writes] = [reads, writes].map(|count| count.load(Ordering::Relaxed));
        Some(CardUse { reads, writes, reached: self.iommu().bytes() })
    }

    fn reset(&self) {
        let power = header::capability(self, POWER_MANAGEMENT);
        let problem = match self.card.reset() {
            Err(error) => format!("the card cannot be reset: {error}"),
            Ok(()) if !self.card.enable(true) || !self.card.answers() || !self.card.wake(power) => {
                "the card was reset and did not come back".to_owned()
            }
            Ok(()) => return,
        };
        // No one may see data of the user before.
        self.lost.store(true, Ordering::Relaxed);
        log::error!("{}: {problem}", self.address);
    }

    fn most_dma_ranges(&self) -> usize {
        gpuvmk_pci::dma::MAX_MAPPINGS
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

impl DirectMap for VfioFunction {
    /// A BAR that is mapped here, for another process to map. With it goes the device's file: who has it can
    /// reset the card and read its configuration, and reaches no memory that was not mapped for DMA here.
    fn plain_memory(&self, region: Region) -> std::io::Result<Option<PlainMemory>> {
        let Some(size) =
            self.bar(region).and(self.regions.get(region.index() as usize)).map(|info| info.size)
        else {
            return Ok(None);
        };
        let (fd, offset) =
            (self.card.fd().try_clone_to_owned()?, self.card.device.get_region_offset(region.index()));
        Ok(Some(PlainMemory { offset: 0, memory: SharedMemory { fd, offset, size } }))
    }

    /// BARs that are mapped here can be mapped into a guest as well. Its accesses then go to the card
    /// directly, and are not counted.
    fn show(&self, region: Region, offset: u64, size: u64, visit: &mut dyn FnMut(DirectWindow<'_>)) {
        if self.bar(region).is_none() || self.check(region, offset, 0).is_err() {
            return;
        }
        let limit = self.regions.get(region.index() as usize).map_or(0, |info| info.size);
        let size = size.min(limit.saturating_sub(offset)) / PAGE_SIZE * PAGE_SIZE;
        let offset_in_file = self.card.device.get_region_offset(region.index()).saturating_add(offset);
        let backing = Backing::File { fd: self.card.fd(), offset: offset_in_file };
        visit(DirectWindow { offset, size, writable: true, backing });
    }

    fn coalescable_writes(&self) -> Vec<CoalescableWrite> {
        Vec::new()
    }

    fn is_posted(&self, _: Region, _: u64, _: usize) -> bool {
        false
    }

    fn watch(&self, _: Option<Arc<dyn RegionWatcher>>) {}
}

impl VfioFunction {
    fn connect_or_say(&self, sink: Option<Arc<dyn InterruptSink>>) -> Option<Connected> {
        let connected = self.connect(sink);
        connected.map_err(|error| log::error!("{}: no interrupts: {error}", self.address)).ok()
    }

    /// Without a sink only the notice that the card goes.
    fn connect(&self, sink: Option<Arc<dyn InterruptSink>>) -> anyhow::Result<Connected> {
        let wanted = sink.is_some();
        let lines = Lines::new()?;
        let (lost, loss_callback, address) =
            (Arc::clone(&self.lost), Arc::clone(&self.loss_callback), self.address);
        let listener = Listener::start(&lines, sink, move || {
            log::error!("{address}: the card is being taken away, or the bus reported an error of it");
            lost.store(true, Ordering::Relaxed);
            let tell = loss_callback.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(tell) = tell {
                tell();
            }
        })?;
        if wanted {
            self.card.device.enable_irq(IRQ_MSI, vec![&lines.message])?;
        }
        // Not every function can tell of these.
        for index in [IRQ_ERR, IRQ_REQ] {
            if let Err(error) = self.card.device.enable_irq(index, vec![&lines.going]) {
                log::debug!("{address}: interrupt {index}: {error}");
            }
        }
        Ok(Connected { _listener: listener, _lines: lines })
    }
}

impl Drop for VfioFunction {
    fn drop(&mut self) {
        *self.loss_callback() = None;
        self.connect_interrupts(None);
        // In this order: what it still does reaches nothing.
        if !self.card.enable(false) {
            log::debug!("{}: bus mastering cannot be switched off", self.address);
        }
        self.iommu().unmap_all();
        if let Err(error) = self.card.reset() {
            log::warn!("{}: the card cannot be reset: {error}", self.address);
        }
    }
}
