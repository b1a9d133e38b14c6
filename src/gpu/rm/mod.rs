//! The driver for a GPU, Turing or later, whose host keeps the NVIDIA driver loaded: everything by that
//! driver's own ioctls, as an ordinary user, without VFIO, SR-IOV or a module of ours.
//!
//! A vGPU's requests become objects of the NVIDIA driver: its partition is one memory object, its address
//! spaces are the driver's address spaces with the guest's own addresses, its channels are the driver's
//! channels over the guest's own ring and USERD. So the NVIDIA driver isolates our tenants as it isolates
//! processes: only it writes page tables, and channels have no privilege.
//!
//! From the bottom: `abi` is the interface as data, `kernel` the seam to it, `sys` the real other side.
//! `client` and `device` are objects and calls. `vram`, `system`, `space`, `channel`, `channels` and `events`
//! are the parts, and `driver` joins them. `host_partition` is a partition where there is no VRAM. `worker`
//! is a channel of our own that clears memory. `pinner` pins tenants' memory. `timeslice` is
//! how long a group runs at a time. `host_paths`, `inventory` and
//! `discovery` find GPUs and take one. `raw` is for programs that measure.
//!
//! A guest's commands run unchanged, so the GPU must have the classes of the vGPU's chip.
//!
//! Not handled: MIG, confidential computing, more than one GPU per driver.

pub mod abi;
mod channel;
mod channel_group;
mod channels;
mod clearing;
mod client;
pub mod device;
mod discovery;
mod driver;
mod engine_table;
mod error;
mod events;
mod host_partition;
mod host_paths;
pub mod inventory;
mod kernel;
mod open_error;
mod pinner;
mod pushbuffer;
pub mod raw;
mod space;
mod space_pages;
mod sys;
mod system;
mod taken;
mod timeslice;
mod vram;
mod windows;
mod worker;

#[cfg(any(test, feature = "testing"))]
#[cfg_attr(not(test), allow(dead_code, reason = "its own tests look at more of it"))]
mod mock;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "testing"))]
pub mod timed;

pub use driver::RmDriver;
pub use error::RmError;
pub use host_paths::HostPaths;
pub use open_error::OpenError;
pub use taken::TakenGpu;
pub use timeslice::Timeslice;

use abi::RmStatus;
use gpuvmk_chip::Chip;

/// How to take a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RmConfig {
    /// PCI address, such as `0000:06:00.0`; none: the only one.
    pub gpu: Option<String>,
    /// Bytes of VRAM for tenants together.
    pub vram: u64,
    /// Chip that it is to serve; none: whichever it can.
    pub chip: Option<Chip>,
    /// User to become first. Root must name one.
    pub uid: Option<u32>,
    /// How long a tenant's channels have an engine while another's wait.
    pub timeslice: Timeslice,
    /// Where the host shows its driver.
    pub paths: HostPaths,
}

/// True for the statuses that mean "not yet".
fn is_timeout(status: RmStatus) -> bool {
    matches!(status, RmStatus::ERR_TIMEOUT | RmStatus::ERR_TIMEOUT_RETRY | RmStatus::ERR_BUSY_RETRY)
}
