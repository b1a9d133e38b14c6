//! Why a virtual machine cannot be had.

use gpuvmk_pci::DmaError;
use gpuvmk_pci::mapping::MapError;
use std::io;

/// Why something of a virtual machine could not be done.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    /// A call of KVM failed.
    #[error("KVM: {step} failed")]
    Call {
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The host's KVM lacks something that is needed.
    #[error("This host's KVM has no {0}, which is needed")]
    Missing(&'static str),
    /// Memory could not be had.
    #[error("The guest's memory cannot be mapped")]
    Memory(#[from] MapError),
    /// No memory slot or interrupt number is left.
    #[error("The machine has no {what} left: KVM offers {limit}")]
    Exhausted {
        /// What is limited, in words.
        what: &'static str,
        /// How many there are.
        limit: usize,
    },
    /// A range of addresses is taken, empty, or wraps.
    #[error("No room at {base:#x}+{size:#x} of the {bus} bus: {why}")]
    Place {
        /// Name of the bus.
        bus: &'static str,
        /// Its first address.
        base: u64,
        /// Number of addresses.
        size: u64,
        /// The problem.
        why: String,
    },
    /// A function does not take the guest's memory.
    #[error("The function does not take the guest's memory")]
    Dma(#[from] DmaError),
    /// A file descriptor could not be had.
    #[error("{step} failed")]
    System {
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl KvmError {
    /// For `map_err` after a call of KVM.
    pub fn call(step: &'static str) -> impl Fn(kvm_ioctls::Error) -> Self {
        move |error| Self::Call { step, source: io::Error::from_raw_os_error(error.errno()) }
    }

    /// For `map_err` after another system call.
    pub(super) fn system(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { step, source }
    }
}
