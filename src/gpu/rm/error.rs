//! A call that the NVIDIA driver refuses, with the status by name.

use std::io;

use super::abi::RmStatus;
use super::kernel::CallError;

/// A call that the NVIDIA driver did not carry out.
#[derive(Debug, thiserror::Error)]
pub enum RmError {
    /// It answered with a status.
    #[error("The NVIDIA driver refuses {call}: {status}")]
    Refused {
        /// The call that was made.
        call: String,
        /// The driver's status.
        status: RmStatus,
    },
    /// The system call failed.
    #[error("The NVIDIA driver cannot be asked for {call}")]
    System {
        /// The call that was made.
        call: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Memory that it granted could not be mapped here.
    #[error("Memory of the NVIDIA driver cannot be mapped for {what}")]
    Mapping {
        /// What it was for, in words.
        what: &'static str,
        /// The cause.
        #[source]
        source: gpuvmk_pci::mapping::MapError,
    },
    /// A part of a VM's memory that nobody has filled.
    #[error(
        "{size:#x} bytes of a VM's memory, from {start:#x} of its file on, are not all there: whoever holds \
         them in place would make them, which is for the VM's device back end to do"
    )]
    Unfilled {
        /// Offset in the file.
        start: u64,
        /// Bytes from there.
        size: u64,
    },
}

impl RmError {
    /// Names the call that failed.
    pub(super) fn new(call: impl Into<String>, error: CallError) -> Self {
        match error {
            CallError::Status(status) => Self::Refused { call: call.into(), status },
            CallError::System(source) => Self::System { call: call.into(), source },
        }
    }

    /// The status, where it is one.
    pub fn status(&self) -> Option<RmStatus> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::System { .. } | Self::Mapping { .. } | Self::Unfilled { .. } => None,
        }
    }
}

impl RmError {
    /// True when the driver has no more of what it was asked for.
    pub fn is_shortage(&self) -> bool {
        matches!(
            self.status(),
            Some(
                RmStatus::ERR_NO_MEMORY | RmStatus::ERR_INSUFFICIENT_RESOURCES | RmStatus::ERR_NO_FREE_FIFOS
            )
        )
    }
}
