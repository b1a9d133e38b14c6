//! A virtio device as a PCI function.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use super::common::{Effect, Shape};
use super::memory::{self, MOST_MAPPINGS};
use super::pci::{self, BAR, Kind, MOST_VECTORS, Structure};
use super::transport::{Device, Front, Setup, Transport};
use gpuvmk_pci::config_space::BuildError;
use gpuvmk_pci::{
    AccessError, CardUse, DirectMap, DmaError, DmaMapping, InterruptSink, MessageOwner, PciFunction,
    QueueEvents, Region, RegionTable, SharedRegions, SignalledWrite,
};

/// Most queues of a device.
pub(crate) const MOST_QUEUES: u16 = MOST_VECTORS - 1;

/// Why a device's function cannot be made: an error of this program, or a host without threads or
/// descriptors.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// Its configuration space cannot be built.
    #[error("A virtio function's configuration space cannot be built")]
    ConfigSpace(#[from] BuildError),
    /// Its thread cannot be started.
    #[error("A virtio device's thread cannot be started")]
    Thread(#[source] io::Error),
    /// It has no eventfds.
    #[error("A virtio device has no descriptors left")]
    Descriptors(#[from] io::Error),
}

/// What a device is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Description {
    /// For drivers.
    pub(crate) kind: Kind,
    /// Features beside those that every device has.
    pub(crate) features: u64,
    /// Number of queues, at most [`MOST_QUEUES`].
    pub(crate) queues: u16,
    /// Most entries of a queue: a power of two.
    pub(crate) queue_size: u16,
}

/// A virtio device as a PCI function.
pub struct VirtioFunction {
    transport: Arc<Transport>,
    device: Box<dyn Device>,
    memory: Mutex<GuestMemoryMmap>,
}

impl std::fmt::Debug for VirtioFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtioFunction").finish_non_exhaustive()
    }
}

impl VirtioFunction {
    /// A function in its reset state, with the device that `make` gives.
    pub(crate) fn new<D: Device + 'static>(
        description: Description,
        make: impl FnOnce(&Arc<Transport>) -> Result<D, FunctionError>,
    ) -> Result<Self, FunctionError> {
        let Description { kind, features, queues, queue_size } = description;
        let queues = queues.min(MOST_QUEUES);
        // One for each queue, and one for the configuration.
        let shape = Shape { features, queues, queue_size, vectors: queues + 1 };
        let transport = Arc::new(Transport::new(shape, pci::config_space(kind, shape.vectors)?)?);
        let device = Box::new(make(&transport)?);
        Ok(Self { transport, device, memory: Mutex::new(GuestMemoryMmap::new()) })
    }

    fn memory(&self) -> MutexGuard<'_, GuestMemoryMmap> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the locks that protect what is read only: what a driver reads at each interrupt, and a
    /// notification, need nothing of the rest.
    fn read_structure(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        match Structure::at(offset) {
            Some((Structure::Common, offset)) => self.transport.front().common.read(offset, data),
            Some((Structure::Interrupt, 0)) => {
                if let Some(byte) = data.first_mut() {
                    *byte = self.transport.interrupt().take();
                }
            }
            Some((Structure::Device, offset)) => self.device.read_config(offset, data),
            Some((Structure::Table, offset)) => self.transport.front().table.read(offset, data),
            Some((Structure::Pending, offset)) => {
                let bits = self.transport.interrupt().waiting().to_le_bytes();
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                data.iter_mut().zip(bits.iter().skip(at)).for_each(|(place, byte)| *place = *byte);
            }
            Some((Structure::Interrupt | Structure::Notify, _)) | None => {}
        }
    }

    fn write_structure(&self, offset: u64, data: &[u8]) {
        match Structure::at(offset) {
            Some((Structure::Common, offset)) => self.write_common(offset, data),
            // Whatever is written: a queue that has nothing is looked at in vain.
            Some((Structure::Notify, offset)) => self.device.notify(pci::notified(offset)),
            Some((Structure::Device, offset)) => self.device.write_config(offset, data),
            Some((Structure::Table, offset)) => self.transport.front().table.write(offset, data),
            Some((Structure::Interrupt | Structure::Pending, _)) | None => {}
        }
    }

    fn write_common(&self, offset: u64, data: &[u8]) {
        let mut front = self.transport.front();
        let effect = front.common.write(offset, data);
        let vectors = front.common.vectors();
        match effect {
            Effect::None => {}
            Effect::Vectors => {
                self.transport.interrupt().set_vectors(vectors);
                if front.common.is_driven() {
                    self.device.messages_changed();
                }
            }
            Effect::Start => {
                let queues = front.common.queues().to_vec();
                let setup = Setup { features: front.common.accepted(), queues };
                if let Err(broken) = self.device.start(&setup) {
                    log::warn!("A device stops until its driver resets it: {broken}");
                    let tell = front.common.needs_reset();
                    drop(front);
                    self.transport.tell_of_configuration(tell);
                }
            }
            Effect::Reset if self.device.stop() => self.transport.renew(&mut front),
            Effect::Reset => {}
        }
    }

    /// Where an access to the data of the window in configuration space goes: the offset in the BAR, if it is
    /// one of the bytes that the driver has set.
    fn through_window(front: &Front, offset: u64, size: usize) -> Option<u64> {
        let word = |at| {
            let mut data = [0; 4];
            front.config.read(at, &mut data).map_or(0, |()| u32::from_le_bytes(data))
        };
        let (bar, target, length) =
            (word(pci::WINDOW_BAR), u64::from(word(pci::WINDOW_OFFSET)), word(pci::WINDOW_LENGTH));
        let asked = usize::try_from(length).is_ok_and(|length| length == size && matches!(size, 1 | 2 | 4));
        let fits = bar & 0xff == u32::from(BAR) && target.is_multiple_of(u64::from(length.max(1)));
        (offset == pci::WINDOW_DATA && asked && fits).then_some(target)
    }

    fn read_config(&self, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        let mut front = self.transport.front();
        if let Some(target) = Self::through_window(&front, offset, data.len()) {
            drop(front);
            self.read_structure(target, data);
            return Ok(());
        }
        front.config.set_interrupt_status(self.transport.interrupt().is_pending());
        front.config.read(offset, data)
    }

    fn write_config(&self, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        let mut front = self.transport.front();
        if let Some(target) = Self::through_window(&front, offset, data.len()) {
            drop(front);
            self.write_structure(target, data);
            return Ok(());
        }
        let before = front.config.msix_enabled();
        let change = front.config.write(offset, data)?;
        let by_messages = front.config.msix_enabled();
        if change.control_changed() || before != by_messages {
            self.transport.interrupt().set(change.after.intx_disabled, by_messages);
            self.device.pause(!change.after.bus_master);
            if before != by_messages && front.common.is_driven() {
                self.device.messages_changed();
            }
        }
        Ok(())
    }
}

/// `Ok` if an access lies in its region.
fn check(region: Region, offset: u64, size: usize) -> Result<(), AccessError> {
    let index = usize::try_from(region.index()).unwrap_or(usize::MAX);
    let limit = pci::regions().get(index).map_or(0, |info| info.size);
    if limit == 0 {
        return Err(AccessError::NoRegion(region));
    }
    let inside = offset.checked_add(size as u64).is_some_and(|end| end <= limit);
    if inside { Ok(()) } else { Err(AccessError::OutOfRange { region, offset, size, limit }) }
}

impl PciFunction for VirtioFunction {
    fn regions(&self) -> RegionTable {
        pci::regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        check(region, offset, data.len())?;
        if region == Region::Bar(BAR) {
            self.read_structure(offset, data);
            return Ok(());
        }
        self.read_config(offset, data)
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        check(region, offset, data.len())?;
        if region == Region::Bar(BAR) {
            self.write_structure(offset, data);
            return Ok(());
        }
        self.write_config(offset, data)
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        let mut memory = self.memory();
        *memory = memory::with(&memory, mapping)?;
        self.device.set_memory(memory.clone());
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        let mut memory = self.memory();
        *memory = memory::without(&memory, iova, size)?;
        self.device.set_memory(memory.clone());
        Ok(())
    }

    fn dma_unmap_all(&self) {
        *self.memory() = GuestMemoryMmap::new();
        self.device.set_memory(GuestMemoryMmap::new());
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.transport.interrupt().connect(sink);
    }

    fn reset(&self) {
        let mut front = self.transport.front();
        front.config.reset();
        front.table.reset();
        // One that is not done yet begins nothing new before it is.
        self.device.stop();
        self.device.pause(true);
        self.transport.renew(&mut front);
        self.transport.interrupt().set(false, false);
    }

    fn card_use(&self) -> Option<CardUse> {
        None
    }

    fn most_dma_ranges(&self) -> usize {
        MOST_MAPPINGS
    }

    fn client_gone(&self) {}

    fn direct_map(&self) -> Option<&dyn DirectMap> {
        None
    }

    fn message_owner(&self) -> Option<&dyn MessageOwner> {
        None
    }

    fn queue_events(&self) -> Option<&dyn QueueEvents> {
        Some(self)
    }

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        None
    }
}

impl QueueEvents for VirtioFunction {
    fn signalled_writes(&self) -> io::Result<Vec<SignalledWrite>> {
        let writes = (0u16..).zip(self.transport.kicks()).map(|(value, kick)| {
            let (region, offset) = (Region::Bar(BAR), pci::notify_place(value));
            Ok(SignalledWrite { region, offset, value, event: kick.try_clone()? })
        });
        writes.collect()
    }

    fn connect_messages(&self, events: Vec<EventFd>) {
        self.transport.interrupt().connect_messages(events);
        self.device.messages_changed();
    }
}
