//! Virtio devices on PCI (virtio 1.2: 4.1 for the bus, 5.2 for disks), modern ones only.
//!
//! [`VirtioFunction`] is a PCI function like the vGPU beside it: a front end places its BAR, gives it the
//! guest's memory and takes its interrupts. [`common`] is what driver and device agree on, [`pci`] what lies
//! where, [`interrupt`] messages (one for each queue) and the line, [`transport`] what a device behind it
//! sees. A disk is [`disk_device`]: [`block`] is what a request means, [`disk`] the file behind, [`worker`]
//! the thread that serves a queue.
//!
//! The driver is not trusted. rust-vmm's `virtio-queue` reads rings and requests; it bounds chains and checks
//! addresses. A device whose driver breaks the rules stops and asks for a reset, as the specification
//! requires.

mod block;
mod common;
mod disk;
mod disk_device;
mod function;
mod interrupt;
mod memory;
#[cfg(test)]
mod message_tests;
mod msix_table;
mod pci;
#[cfg(test)]
mod tests;
mod transport;
mod worker;

pub(crate) use common::QueuePlace;
pub use disk::{Disk, DiskError, SECTOR};
pub use disk_device::{MOST_DISK_QUEUES, disk_function};
pub(crate) use function::Description;
pub use function::{FunctionError, VirtioFunction};
pub(crate) use pci::Kind;
pub(crate) use transport::{Device, Setup, Transport};
