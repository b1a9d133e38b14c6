//! As much of Vulkan as the checks need, with safe functions: buffers, compute pipelines, one queue.
//!
//! All unsafe code of the program is below here. Each type keeps what it was made from alive, and waits for
//! the GPU before anything that the GPU may still use goes away ([`commands`] waits for every submission).

mod binary;
mod buffer;
mod commands;
mod device;
mod instance;
mod kernel;

pub use binary::kept;
pub use buffer::{Buffer, Place};
pub use commands::{Commands, Timing};
pub use device::Device;
pub use instance::{Gpu, Instance};
pub use kernel::Kernel;
