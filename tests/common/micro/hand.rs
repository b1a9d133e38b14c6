//! A PCI function as a driver outside has it whose accesses to BARs are made by a micro guest's processor:
//! what any driver of the tests does goes through KVM.
//!
//! Writes are posted, as on a bus: they are made together before the next read, in their order, or a moment
//! later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gpuvmk::frontend::kvm::ShortcutCounts;
use gpuvmk::pci::{
    AccessError, CardUse, DirectMap, DmaError, DmaMapping, InterruptSink, MessageOwner, PciFunction,
    QueueEvents, Region, RegionTable, SharedRegions,
};

use super::{MicroGuest, Operation};

/// Writes that are posted at most.
const POSTED: usize = 4096;

/// The guest, and what it has still to do.
pub struct Hands {
    pub guest: MicroGuest,
    posted: Vec<Operation>,
}

impl Hands {
    fn post(&mut self, operation: Operation) {
        self.posted.push(operation);
        if self.posted.len() >= POSTED {
            self.flush();
        }
    }

    /// Makes the posted writes.
    pub fn flush(&mut self) {
        if !self.posted.is_empty() {
            self.guest.run(&self.posted);
            self.posted.clear();
        }
    }

    fn read(&mut self, operation: Operation) -> u64 {
        self.posted.push(operation);
        let given = self.guest.run(&self.posted);
        self.posted.clear();
        given[0]
    }
}

/// The guest, and who waits for its interrupts.
struct Shared {
    guest: Mutex<Hands>,
    sink: Mutex<Option<Arc<dyn InterruptSink>>>,
}

/// The driver's side.
pub struct Hand {
    shared: Arc<Shared>,
    function: Arc<dyn PciFunction>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks for messages that KVM delivered, for as long as the hand lives.
fn deliver(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        let came = {
            let mut hands = locked(&shared.guest);
            hands.flush();
            hands.guest.take_message()
        };
        if came && let Some(sink) = locked(&shared.sink).clone() {
            sink.fire_msi(0);
        }
        drop(shared);
        std::thread::sleep(Duration::from_micros(500));
    }
}

impl Hand {
    pub fn new(function: Arc<dyn PciFunction>, direct: bool) -> Arc<Self> {
        let guest = MicroGuest::new(Arc::clone(&function), direct);
        let guest = Mutex::new(Hands { guest, posted: Vec::new() });
        let shared = Arc::new(Shared { guest, sink: Mutex::new(None) });
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || deliver(&weak));
        Arc::new(Self { shared, function })
    }

    /// The guest itself, with all writes made.
    pub fn hands(&self) -> MutexGuard<'_, Hands> {
        let mut hands = locked(&self.shared.guest);
        hands.flush();
        hands
    }

    pub fn shortcuts(&self) -> ShortcutCounts {
        self.hands().guest.attached.shortcuts()
    }
}

impl PciFunction for Hand {
    fn regions(&self) -> RegionTable {
        self.function.regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        let mut hands = locked(&self.shared.guest);
        match region {
            Region::Bar(bar) if hands.guest.bar(bar) != 0 && matches!(data.len(), 1 | 2 | 4 | 8) => {
                let address = hands.guest.bar(bar) + offset;
                let value = hands.read(Operation::Read { address, size: data.len() }).to_le_bytes();
                data.copy_from_slice(&value[..data.len()]);
                return Ok(());
            }
            _ => hands.flush(),
        }
        match region {
            Region::Config => hands.guest.attached.read_config(offset, data),
            _ => return self.function.read(region, offset, data),
        }
        Ok(())
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        let mut hands = locked(&self.shared.guest);
        match region {
            Region::Bar(bar) if hands.guest.bar(bar) != 0 && matches!(data.len(), 1 | 2 | 4 | 8) => {
                let mut value = [0; 8];
                value[..data.len()].copy_from_slice(data);
                let (address, size) = (hands.guest.bar(bar) + offset, data.len());
                hands.post(Operation::Write { address, size, value: u64::from_le_bytes(value) });
                return Ok(());
            }
            _ => hands.flush(),
        }
        match region {
            Region::Config => hands.guest.attached.write_config(offset, data),
            _ => return self.function.write(region, offset, data),
        }
        Ok(())
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        self.function.dma_map(mapping)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.function.dma_unmap(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.function.dma_unmap_all();
    }

    /// Who hears of messages that KVM has delivered.
    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        *locked(&self.shared.sink) = sink;
    }

    fn reset(&self) {
        let mut hands = self.hands();
        hands.guest.attached.reset();
        hands.guest.place_bars();
    }

    fn card_use(&self) -> Option<CardUse> {
        self.function.card_use()
    }

    fn most_dma_ranges(&self) -> usize {
        self.function.most_dma_ranges()
    }

    fn client_gone(&self) {
        self.function.client_gone();
    }

    fn direct_map(&self) -> Option<&dyn DirectMap> {
        None
    }

    fn message_owner(&self) -> Option<&dyn MessageOwner> {
        None
    }

    fn queue_events(&self) -> Option<&dyn QueueEvents> {
        None
    }

    fn shared_regions(&self) -> Option<&dyn SharedRegions> {
        self.function.shared_regions()
    }
}
