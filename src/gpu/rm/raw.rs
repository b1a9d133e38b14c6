//! The NVIDIA driver as any of its clients has it: for `gpuvmk-gpu-bench`, which measures on the code that
//! serves guests what guests are compared with.
//!
//! Nothing is checked here for tenants, of whom there are none.

use std::sync::Arc;

pub use super::device::{Device, DeviceFacts, Doorbell};
pub use super::discovery::{Opened, open_device, open_kernel};
pub use super::engine_table::EngineTable;
pub use super::kernel::Kernel;
pub use super::pushbuffer::Commands;
pub use super::vram::{GRANULE, vram_params};
pub use super::worker::{STAGING, VIDEO_VA, Work, Worker};

use super::abi::Handle;
use super::{OpenError, RmConfig, RmDriver, TakenGpu};
use crate::SpaceHandle;

/// Takes a GPU of an NVIDIA driver that is open.
///
/// # Errors
/// See [`OpenError`].
pub fn open_driver(kernel: &Arc<dyn Kernel>, config: &RmConfig) -> Result<RmDriver, OpenError> {
    TakenGpu::on_kernel(kernel, config)?.start()
}

/// The GPU that a driver has.
pub fn device(driver: &RmDriver) -> &Device {
    driver.device()
}

/// The NVIDIA driver's object of an address space; `None`: there is no such space.
pub fn space_object(driver: &RmDriver, space: SpaceHandle) -> Option<Handle> {
    driver.space_object(space)
}
