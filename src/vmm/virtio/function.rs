//! A disk as a PCI function.
//!
//! Locks, in the order in which they are taken: `front`, `work`, `interrupt`. The thread that serves the
//! queue holds `work` while it carries a request out, so only what starts and stops the device waits for a
//! request; reads of registers do not.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};
use zerocopy::IntoBytes;

use super::block::{self, Config, EVENT_IDX, FLUSH, Server};
use super::common::{Common, Effect};
use super::disk::Disk;
use super::interrupt::{self, Interrupt};
use super::pci::{self, BAR, Structure};
use super::worker::{ProtocolError, Step, Work, WorkSignal};
use gpuvmk_jail::{self as jail, Role};
use gpuvmk_pci::config_space::{BuildError, ConfigSpace};
use gpuvmk_pci::{
    AccessError, CardUse, DirectMap, DmaBacking, DmaError, DmaMapping, InterruptSink, MessageOwner,
    PciFunction, Region, RegionTable, SharedRegions,
};

/// Most parts of the guest's memory.
const MOST_MAPPINGS: usize = 64;

/// Why a disk's function cannot be made: an error of this program, or a host without threads.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// Its configuration space cannot be built.
    #[error("A disk's configuration space cannot be built")]
    ConfigSpace(#[from] BuildError),
    /// Its thread cannot be started.
    #[error("A disk's thread cannot be started")]
    Thread(#[source] io::Error),
}

/// The part that the driver sets up.
struct Front {
    config: ConfigSpace,
    common: Common,
}

/// The state that the function and its thread share.
struct Shared {
    front: Mutex<Front>,
    work: Mutex<Work>,
    interrupt: Mutex<Interrupt>,
    bell: WorkSignal,
    device: Config,
}

/// A virtio disk as a PCI function.
pub struct VirtioDisk {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for VirtioDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtioDisk").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VirtioDisk {
    /// A function that shows `disk`, in its reset state.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn new(disk: Disk) -> Result<Self, FunctionError> {
        let front = Front { config: pci::config_space()?, common: Common::new(block::features(&disk)) };
        let shared = Arc::new(Shared {
            front: Mutex::new(front),
            device: Config::of(&disk),
            work: Mutex::new(Work::new(Server::new(disk))),
            interrupt: Mutex::default(),
            bell: WorkSignal::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("disk".to_owned()).spawn(move || {
            jail::enter(Role::Disk);
            own.serve();
        });
        Ok(Self { shared, thread: Some(thread.map_err(FunctionError::Thread)?) })
    }
}

impl Drop for VirtioDisk {
    fn drop(&mut self) {
        self.shared.bell.end();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("A disk's thread ended by a panic");
        }
    }
}

impl Shared {
    /// A kind of the thread's work.
    fn serve(&self) {
        while self.bell.wait() {
            loop {
                // Unlocked after each request: stopping the device waits for one at most.
                let step = lock(&self.work).step();
                match step {
                    Ok(Step::Idle) => break,
                    Ok(Step::Served { tell: true }) => lock(&self.interrupt).raise(interrupt::QUEUE),
                    Ok(Step::Served { tell: false }) => {}
                    Err(broken) => {
                        self.stop_for(&mut lock(&self.front), &broken);
                        break;
                    }
                }
            }
        }
    }

    /// The driver has broken the rules: the device waits for its reset.
    fn stop_for(&self, front: &mut Front, broken: &ProtocolError) {
        log::warn!("A disk stops until its driver resets it: {:#}", anyhow::format_err!("{broken}"));
        if front.common.needs_reset() {
            lock(&self.interrupt).raise(interrupt::CONFIGURATION);
        }
    }

    fn reset_device(&self, front: &mut Front) {
        front.common.reset();
        lock(&self.work).stop();
        lock(&self.interrupt).take();
    }

    /// Takes `front` for what it protects only: what a driver reads at each interrupt, and a notification,
    /// need nothing of it.
    fn read_structure(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        match Structure::at(offset) {
            Some((Structure::Common, offset)) => lock(&self.front).common.read(offset, data),
            Some((Structure::Interrupt, 0)) => {
                if let Some(byte) = data.first_mut() {
                    *byte = lock(&self.interrupt).take();
                }
            }
            Some((Structure::Device, offset)) => {
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                let bytes = self.device.as_bytes().get(at..).unwrap_or_default();
                data.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
            }
            Some((Structure::Interrupt | Structure::Notify, _)) | None => {}
        }
    }

    fn write_structure(&self, offset: u64, data: &[u8]) {
        match Structure::at(offset) {
            Some((Structure::Common, offset)) => {
                let mut front = lock(&self.front);
                match front.common.write(offset, data) {
                    Effect::None => {}
                    Effect::Start => self.start(&mut front),
                    Effect::Reset => self.reset_device(&mut front),
                }
            }
            // The one queue, whatever is written: a queue that has nothing is looked at in vain.
            Some((Structure::Notify, _)) => self.bell.ring(),
            Some((Structure::Interrupt | Structure::Device, _)) | None => {}
        }
    }

    fn start(&self, front: &mut Front) {
        let (events, write_through) = (front.common.has(EVENT_IDX), !front.common.has(FLUSH));
        let started = lock(&self.work).start(front.common.queue(), events, write_through);
        match started {
            // Requests that were made available before get no notification.
            Ok(()) => self.bell.ring(),
            Err(broken) => self.stop_for(front, &broken),
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
        let mut front = lock(&self.front);
        if let Some(target) = Self::through_window(&front, offset, data.len()) {
            drop(front);
            self.read_structure(target, data);
            return Ok(());
        }
        front.config.set_interrupt_status(lock(&self.interrupt).is_pending());
        front.config.read(offset, data)
    }

    fn write_config(&self, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        let mut front = lock(&self.front);
        if let Some(target) = Self::through_window(&front, offset, data.len()) {
            drop(front);
            self.write_structure(target, data);
            return Ok(());
        }
        let change = front.config.write(offset, data)?;
        if change.control_changed() {
            let allowed = change.after.bus_master;
            lock(&self.work).set_bus_master(allowed);
            lock(&self.interrupt).disable(change.after.intx_disabled);
            if allowed {
                self.bell.ring();
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

impl PciFunction for VirtioDisk {
    fn regions(&self) -> RegionTable {
        pci::regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        check(region, offset, data.len())?;
        if region == Region::Bar(BAR) {
            self.shared.read_structure(offset, data);
            return Ok(());
        }
        self.shared.read_config(offset, data)
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        check(region, offset, data.len())?;
        if region == Region::Bar(BAR) {
            self.shared.write_structure(offset, data);
            return Ok(());
        }
        self.shared.write_config(offset, data)
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        let DmaMapping { iova, size, backing, .. } = mapping;
        // Memory that cannot be reached is not there for the queue.
        let Some(DmaBacking { fd, offset }) = backing else { return Ok(()) };
        let mut work = lock(&self.shared.work);
        if work.memory().num_regions() >= MOST_MAPPINGS {
            return Err(DmaError::TooMany(MOST_MAPPINGS));
        }
        let unreachable = |error: String| DmaError::Backing { iova, size, source: io::Error::other(error) };
        let bytes = usize::try_from(size).map_err(|error| unreachable(error.to_string()))?;
        let file = File::from(fd);
        // Memory beyond a file's end can be mapped, and not reached.
        let length = file.metadata().map_err(|source| DmaError::Backing { iova, size, source })?.len();
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(unreachable(format!("the file has {length} bytes")));
        }
        let file = FileOffset::new(file, offset);
        let part = GuestRegionMmap::from_range(GuestAddress(iova), bytes, Some(file))
            .map_err(|error| unreachable(error.to_string()))?;
        let memory =
            work.memory().insert_region(Arc::new(part)).map_err(|_| DmaError::Overlap { iova, size })?;
        work.set_memory(memory);
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        let absent = DmaError::NotMapped { iova, size };
        let mut work = lock(&self.shared.work);
        let Some(end) = iova.checked_add(size) else { return Err(absent) };
        let mut memory = work.memory().clone();
        let inside: Vec<_> = memory
            .iter()
            .filter(|part| part.start_addr().0 < end && iova <= part.last_addr().0)
            .map(|part| (part.start_addr(), part.len()))
            .collect();
        if inside.is_empty() {
            return Err(absent);
        }
        for (start, length) in inside {
            if start.0 < iova || start.0 + (length - 1) >= end {
                return Err(DmaError::Invalid { iova, size, why: "a mapping would be split" });
            }
            (memory, _) =
                memory.remove_region(start, length).map_err(|_| DmaError::NotMapped { iova, size })?;
        }
        work.set_memory(memory);
        Ok(())
    }

    fn dma_unmap_all(&self) {
        lock(&self.shared.work).set_memory(GuestMemoryMmap::new());
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        lock(&self.shared.interrupt).connect(sink);
    }

    fn reset(&self) {
        let mut front = lock(&self.shared.front);
        front.config.reset();
        self.shared.reset_device(&mut front);
        lock(&self.shared.work).set_bus_master(false);
        lock(&self.shared.interrupt).disable(false);
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

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        None
    }
}
