//! The driver on the module in memory, whose calls take the times that were measured on hardware
//! (docs/rm.md), by a clock that tests read and move.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "for tests alone, of this room and of others"
)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::abi::Handle;
use super::abi::classes::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
use super::clearing::{Cleaner, Ticket};
use super::device::Device;
use super::discovery::open_device;
use super::driver::{Helpers, RmDriver, wake};
use super::host_paths::HostPaths;
use super::mock::Mock;
use super::pinner::{Answer, Order, PinContext, Pinner};
use crate::{GpuError, Scrub};
use gpuvmk_host::clock::{Clock, ManualClock};

/// Time of pinning a piece, and of unpinning it, in nanoseconds: 20 and 5 ms for 64 MiB.
const PIN: u64 = 625_000;
const UNPIN: u64 = 160_000;

/// A driver, and what makes its time go by.
#[derive(Debug)]
pub struct Timed {
    /// The clock that calls advance.
    pub clock: Arc<ManualClock>,
    mock: Mock,
    zero: Arc<Mutex<u64>>,
}

impl Timed {
    /// A driver with `vram` bytes for tenants.
    pub fn new(vram: u64) -> (RmDriver, Self) {
        let clock = Arc::new(ManualClock::default());
        let mock = Mock::new();
        mock.state().vram_free = 64 << 30;
        let slow = mock.timed(&clock);
        let (mut device, facts, table, chip) =
            open_device(&slow.kernel(), &HostPaths::default(), None).unwrap();
        let doorbell = Arc::new(device.doorbell(chip).unwrap());
        let zero = Arc::new(Mutex::new(500_000));
        let helpers = Helpers {
            cleaner: Box::new(LateWiper {
                clock: Arc::clone(&clock),
                takes: Arc::clone(&zero),
                due: Vec::new(),
            }),
            pinner: Box::new(LatePinner {
                // Beside the owner: its time is not the owner's.
                context: context(&mock, &device),
                clock: Arc::clone(&clock),
                orders: VecDeque::new(),
            }),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            wake: wake().unwrap(),
            windows: device.client.kernel().open_files().unwrap(),
        };
        let driver = RmDriver::with_helpers(device, doorbell, helpers, facts, (table, chip), vram).unwrap();
        (driver, Self { clock, mock, zero })
    }

    /// Sets how long the GPU takes to zero a piece while others use its engine.
    pub fn zeroing_takes(&self, time: Duration) {
        *self.zero.lock().unwrap_or_else(PoisonError::into_inner) = u64::try_from(time.as_nanos()).unwrap();
    }

    /// Partitions that are made from now on are system memory: BAR1 has no room for more.
    pub fn fill_bar1(&self) {
        self.mock.state().vram_free = 0;
    }

    /// Pieces of memory that are held in place.
    pub fn held(&self) -> usize {
        self.mock.state().count(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR)
    }

    /// Channels do not leave their engines.
    pub fn cling(&self) {
        self.mock.state().clings = true;
    }

    /// The module has no memory for a mapping, once so many were made.
    pub fn refuse_map_after(&self, maps: usize) {
        self.mock.state().refuse_map_after = Some(maps);
    }

    /// Mappings that there are.
    pub fn mapped(&self) -> usize {
        let (maps, unmaps) = self.calls();
        maps - unmaps
    }

    /// Calls to map and to unmap so far.
    pub fn calls(&self) -> (usize, usize) {
        let state = self.mock.state();
        (state.maps, state.unmaps)
    }
}

/// The context of a pinner on the mock.
pub(super) fn context(mock: &Mock, device: &Device) -> PinContext {
    PinContext {
        kernel: mock.kernel(),
        node: Arc::new(device.file().try_clone_to_owned().unwrap()),
        client: device.client.root(),
        device: device.device,
        takes_holes: true,
    }
}

/// One thread that carries orders out by the clock.
struct LatePinner {
    context: PinContext,
    clock: Arc<ManualClock>,
    /// With the time when each is done.
    orders: VecDeque<(u64, Order)>,
}

impl Pinner for LatePinner {
    fn order(&mut self, order: Order) {
        let takes = if matches!(order, Order::Pin { .. }) { PIN } else { UNPIN };
        let begins = self.orders.back().map_or(0, |(due, _)| *due).max(self.clock.now());
        self.orders.push_back((begins + takes, order));
    }

    fn answer(&mut self) -> Option<Answer> {
        self.orders.front().filter(|(due, _)| *due <= self.clock.now())?;
        let (_, order) = self.orders.pop_front()?;
        Some(self.context.carry_out(order))
    }
}

/// Carries orders out at once.
#[cfg(test)]
pub(super) struct QuickPinner {
    pub context: PinContext,
    pub answers: VecDeque<Answer>,
}

#[cfg(test)]
impl Pinner for QuickPinner {
    fn order(&mut self, order: Order) {
        self.answers.push_back(self.context.carry_out(order));
    }

    fn answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }
}

/// An engine that clears nothing, and takes its time for it.
struct LateWiper {
    clock: Arc<ManualClock>,
    takes: Arc<Mutex<u64>>,
    due: Vec<u64>,
}

impl Cleaner for LateWiper {
    fn begin(
        &mut self,
        _device: &Device,
        _object: Handle,
        _offset: u64,
        _size: u64,
    ) -> Result<Option<Ticket>, GpuError> {
        let takes = *self.takes.lock().unwrap_or_else(PoisonError::into_inner);
        self.due.push(self.clock.now() + takes);
        Ok(Some(Ticket(self.due.len() - 1)))
    }

    fn look(&mut self, _device: &Device, Ticket(index): Ticket) -> Result<Scrub, GpuError> {
        Ok(if self.due[index] <= self.clock.now() { Scrub::Done } else { Scrub::Pending })
    }

    fn objects(&self) -> Vec<Handle> {
        Vec::new()
    }
}
