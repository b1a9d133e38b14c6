//! nouveau's devices, buffers and channels over raw ioctls (the interface that Mesa's nvc0 uses on Fermi).

pub mod abi;
mod buffer;
mod channel;
mod device;

pub use buffer::{Buffer, Place, errno};
pub use channel::Channel;
pub use device::{Device, render_nodes};

/// Bytes as the ioctls count them, for a size of this 64-bit program.
fn bytes(size: usize) -> u64 {
    size as u64
}
