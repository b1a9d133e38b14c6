//! A small virtual machine monitor: boots a stock Linux kernel on KVM with a GPU function in the same
//! process.
//!
//! The machine has the parts that a stock kernel needs and no more: processors, memory, KVM's interrupt
//! controllers, a PCI host bridge with ECAM, a serial console, disks ([`virtio`]), devices of other
//! processes ([`vhost_user`]), ACPI tables (the hardware-reduced kind), a register to power off and one to
//! reset, and the keyboard controller's reset line. There is no firmware: the kernel is loaded and entered
//! as the Linux boot protocol says (`Documentation/arch/x86/boot.rst`), and its PCI functions have their
//! places already.
//!
//! [`layout`] says what lies where; [`machine`] puts the parts together.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod acpi;
mod boot;
mod error;
mod host;
mod layout;
mod machine;
mod pci_bus;
mod power;
mod processors;
mod serial;
pub mod vhost_user;
pub mod virtio;

pub use boot::{BootError, BootFile};
pub use error::VmmError;
pub use host::HostError;
pub use layout::{MAX_MEMORY, MIN_MEMORY};
pub use machine::{VmmConfig, open_kvm, run};
pub use power::{ExitReason, StopVmm};
