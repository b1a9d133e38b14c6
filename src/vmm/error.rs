//! Why a machine does not run.

use std::io;

use super::boot::BootError;
use super::host::HostError;
use super::pci_bus::NoBarSpace;
use gpuvmk_frontend::kvm::KvmError;

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum VmmError {
    /// The host is none for it.
    #[error(transparent)]
    Host(#[from] HostError),
    /// KVM refuses something.
    #[error(transparent)]
    Kvm(#[from] KvmError),
    /// The kernel cannot be loaded.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// A function has no room.
    #[error(transparent)]
    NoBarSpace(#[from] NoBarSpace),
    /// A system call failed.
    #[error("{0} failed")]
    System(&'static str, #[source] io::Error),
    /// The guest's memory cannot be seen by the loader.
    #[error("The guest's memory cannot be written: {0}")]
    Memory(String),
}
