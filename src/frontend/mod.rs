//! How a guest reaches a [`crate::pci::PciFunction`]. Front ends know sockets and virtual machines, and nothing
//! of GPUs.

pub mod kvm;
mod pieces;
pub mod vfio_user;
