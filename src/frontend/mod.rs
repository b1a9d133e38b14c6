//! How a guest reaches a [`gpuvmk_pci::PciFunction`]. Front ends know sockets and virtual machines, and
//! nothing of GPUs.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod kvm;
mod pieces;
pub mod vfio_user;
