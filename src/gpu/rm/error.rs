//! What can go wrong with the NVIDIA driver: each refusal with the call, the status by name, and, where a user can
//! do something, what.

use std::io;

use super::abi::{Branch, RmStatus};
use super::kernel::{CallError, Node};
use crate::gpu::GpuError;

/// A call that the NVIDIA driver did not carry out.
#[derive(Debug, thiserror::Error)]
pub enum RmError {
    /// It answered with a status.
    #[error("The NVIDIA driver refuses {call}: {status}")]
    Refused {
        /// What was asked.
        call: String,
        /// Its answer.
        status: RmStatus,
    },
    /// The system call failed.
    #[error("The NVIDIA driver cannot be asked for {call}")]
    System {
        /// What was asked.
        call: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Memory that it granted could not be mapped here.
    #[error("Memory of the NVIDIA driver cannot be mapped for {what}")]
    Mapping {
        /// For what.
        what: &'static str,
        /// Why.
        #[source]
        source: crate::pci::mapping::MapError,
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
            Self::System { .. } | Self::Mapping { .. } => None,
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

impl From<RmError> for GpuError {
    fn from(error: RmError) -> Self {
        match error.status() {
            Some(RmStatus::ERR_GPU_IS_LOST | RmStatus::ERR_GPU_IN_FULLCHIP_RESET) => Self::Lost,
            _ => Self::Rm(error),
        }
    }
}

/// Why the RM driver does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No module is loaded.
    #[error(
        "No NVIDIA driver is loaded on this machine: /proc/driver/nvidia/version does not exist. Load the open \
         kernel module (`modprobe nvidia`) of branch {}, or use backend = \"soft\"",
        Branch::list()
    )]
    NoDriver,
    /// A branch whose structures are not known.
    #[error(
        "NVIDIA driver {version} is of a branch that is not supported; supported: {}. Its structures differ from \
         branch to branch, so nothing was tried. Install a driver of a supported branch",
        Branch::list()
    )]
    WrongBranch {
        /// What is loaded.
        version: String,
    },
    /// A node cannot be opened.
    #[error(
        "{node} is not accessible for user {uid}. Where nodes are not open to all (mode 0666), give that user's \
         group access; where they do not exist, run `nvidia-modprobe -c 0` once"
    )]
    Node {
        /// Which.
        node: Node,
        /// Effective user.
        uid: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Root, and nobody else named.
    #[error(
        "The RM driver does not run as root: channels that root makes may address physical memory. Start it as an \
         ordinary user, or name one with `uid`"
    )]
    Root,
    /// The user cannot be changed.
    #[error("This process cannot become user {uid}")]
    Privileges {
        /// Wanted.
        uid: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No such GPU.
    #[error("The NVIDIA driver has no GPU {wanted}; it has {present}")]
    NoGpu {
        /// What was asked for.
        wanted: String,
        /// What there is.
        present: String,
    },
    /// A GPU that serves none of our vGPUs.
    #[error(
        "GPU {name} at {address} is of the {architecture} architecture. The RM driver serves vGPUs of chip GH100, \
         which only Hopper GPUs (H100, H200, GH200) can execute: a guest's commands run on it as they are"
    )]
    WrongArchitecture {
        /// Marketing name.
        name: String,
        /// PCI address.
        address: String,
        /// What it is.
        architecture: String,
    },
    /// Not enough memory.
    #[error(
        "GPU {name} has {free} MiB of VRAM free, {wanted} MiB are wanted. Lower `vram`, or end what uses the GPU \
         (`nvidia-smi` lists it)"
    )]
    NotEnoughVram {
        /// Marketing name.
        name: String,
        /// MiB.
        free: u64,
        /// MiB.
        wanted: u64,
    },
    /// Engines that a vGPU needs are not there.
    #[error("GPU {name} lacks {what}, which every GH100 vGPU has")]
    MissingEngine {
        /// Marketing name.
        name: String,
        /// What.
        what: &'static str,
    },
    /// The driver's own channel does not work.
    #[error("The RM driver cannot be set up")]
    Setup(#[source] Box<GpuError>),
    /// The driver refuses something that it should not.
    #[error(transparent)]
    Rm(#[from] RmError),
    /// Input or output.
    #[error("The RM driver cannot be set up")]
    Io(#[from] io::Error),
}
