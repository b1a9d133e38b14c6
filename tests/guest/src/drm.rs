//! nouveau's devices, buffers and channels over raw ioctls (the interfaces that Mesa's nvc0 and NVK use).

pub mod abi;
mod buffer;
mod channel;
mod device;
mod exec;
mod framebuffer;
mod modeset;
mod plane;
mod syncobj;

pub use buffer::{Buffer, Place, Question, errno};
pub use channel::Channel;
pub use device::{Device, render_nodes};
pub use exec::{Bound, Mapped, UserSpace};
pub use framebuffer::{Framebuffer, Layout};
pub use modeset::{Mode, Screen};
pub use plane::Table;
pub use syncobj::Syncobj;

/// Bytes as the ioctls count them, for a size of this 64-bit program.
fn bytes(size: usize) -> u64 {
    size as u64
}
