//! A GPU that is taken, without threads yet.
//!
//! A thread that runs before its process is confined keeps what the process had then. So whoever takes a GPU
//! confines the process first, and starts the driver's threads afterwards.

use std::sync::Arc;

use super::RmDriver;
use super::device::{Device, DeviceFacts, Doorbell};
use super::driver::{Helpers, wake};
use super::engine_table::EngineTable;
use super::kernel::OpenFiles;
use super::open_error::OpenError;
use super::pinner::{self, PinContext};
use super::worker::{Work, Worker};
use crate::budget;
use gpuvmk_chip::Chip;

/// Bytes for reading cleared memory back.
const STAGING: u64 = 32 << 20;

/// A GPU that is taken: every file is open but the driver's own nodes, and no thread runs.
pub struct TakenGpu {
    device: Device,
    doorbell: Arc<Doorbell>,
    worker: Worker,
    facts: DeviceFacts,
    table: EngineTable,
    chip: Chip,
    vram: u64,
    windows: Box<dyn OpenFiles>,
}

impl std::fmt::Debug for TakenGpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TakenGpu").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl TakenGpu {
    /// Takes a GPU that was found fit.
    pub(super) fn new(
        mut device: Device,
        facts: DeviceFacts,
        table: EngineTable,
        chip: Chip,
        vram: u64,
    ) -> Result<Self, OpenError> {
        let doorbell = Arc::new(device.doorbell(chip)?);
        let lone = table.engine_type(gpuvmk_chip::Engine::COPY1).unwrap_or_default();
        let worker = Worker::new(&mut device, chip, Arc::clone(&doorbell), Work::Copy(lone), STAGING)
            .map_err(|error| OpenError::Setup(Box::new(error)))?;
        // Its file in `/proc` is out of reach later.
        let windows = device.client.kernel().open_files()?;
        Ok(Self { device, doorbell, worker, facts, table, chip, vram, windows })
    }

    /// Starts its threads and drives it. To be called when the process is confined.
    ///
    /// # Errors
    /// The kernel gives no thread, or the NVIDIA driver refuses a call.
    pub fn start(self) -> Result<RmDriver, OpenError> {
        let Self { device, doorbell, worker, facts, table, chip, vram, windows } = self;
        let wake = wake()?;
        let context = PinContext {
            kernel: device.client.shared_kernel(),
            node: Arc::new(device.file().try_clone_to_owned()?),
            client: device.client.root(),
            device: device.device,
            takes_holes: false,
        };
        let pinner = Box::new(pinner::start(&context, &wake)?);
        let clock = budget::monotonic();
        let helpers = Helpers { cleaner: Box::new(worker), pinner, clock, wake, windows };
        RmDriver::with_helpers(device, doorbell, helpers, facts, (table, chip), vram)
    }
}
