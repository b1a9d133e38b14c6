//! Disks as virtio block devices on PCI (virtio 1.2: 4.1 for the bus, 5.2 for the device), modern ones only.
//!
//! [`VirtioDisk`] is a PCI function like the vGPU beside it: a front end places its BAR, gives it the guest's
//! memory and takes its interrupt line. [`common`] is what driver and device agree on, [`pci`] what lies
//! where, [`block`] what a request means, [`disk`] the file behind, [`worker`] the thread that serves the
//! queue.
//!
//! The driver is not trusted. rust-vmm's `virtio-queue` reads rings and requests; it bounds chains and checks
//! addresses. A device whose driver breaks the rules stops and asks for a reset, as the specification
//! requires.

mod block;
mod common;
mod disk;
mod function;
mod interrupt;
mod pci;
#[cfg(test)]
mod tests;
mod worker;

pub use disk::{Disk, DiskError, SECTOR};
pub use function::{FunctionError, VirtioDisk};
