//! Why the NVIDIA driver cannot be used. Each error says what a user can do about it.

use std::io;

use super::abi::Branch;
use super::abi::branch::VERSION_FILE;
use super::error::RmError;
use super::kernel::Node;
use crate::GpuError;
use gpuvmk_chip::{Chip, Face};

/// Why the RM driver does not start: with the remedy, and nothing left of the attempt.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No module is loaded.
    #[error(
        "No NVIDIA driver is loaded on this machine: {VERSION_FILE} does not exist. Load the open kernel module \
         (`modprobe nvidia`) of branch {}, or use backend = \"soft\"",
        Branch::list()
    )]
    NoDriver,
    /// A module whose version is unknown.
    #[error(
        "Which NVIDIA driver is loaded cannot be told from {VERSION_FILE}: {why}. Supported branches: {}; nothing was \
         tried",
        Branch::list()
    )]
    UnclearDriver {
        /// What is wrong with the file.
        why: String,
    },
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
        /// The device node.
        node: Node,
        /// Id of the effective user.
        uid: u32,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The process is root's, and no other user was named.
    #[error(
        "The RM driver does not run as root: channels that root makes may address physical memory. Start it as an \
         ordinary user, or name one with `uid`"
    )]
    Root,
    /// Objects of a client are in reach of others.
    #[error(
        "The NVIDIA driver was loaded with a setting (RmClientDataValidation) that does not tell clients apart by their files: VMs would reach \
         the host's objects. Load it without"
    )]
    LaxClients,
    /// The user cannot be changed.
    #[error(
        "This process cannot become user {uid}, as only root's can. Start it as that user, or leave the user out"
    )]
    Privileges {
        /// Id of the wanted user.
        uid: u32,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A driver without a GPU.
    #[error(
        "The NVIDIA driver has no GPU. `gpuvmk gpu list` shows those on the bus and which kernel driver has them; the \
         kernel's log says why the NVIDIA driver did not take one"
    )]
    NoGpus,
    /// No such GPU.
    #[error(
        "The NVIDIA driver has no GPU {wanted}{elsewhere}; it has {present}. Correct the address (`device` in a GPU's \
         file)"
    )]
    UnknownGpu {
        /// The name or address that was asked for.
        wanted: String,
        /// The GPUs that there are, in words.
        present: String,
        /// The driver that has the wanted GPU, in words.
        elsewhere: String,
    },
    /// The host has several GPUs, and none was named.
    #[error(
        "The NVIDIA driver has several GPUs: {present}. Name one by its PCI address (`device` in a GPU's file)"
    )]
    SeveralGpus {
        /// The GPUs that there are, in words.
        present: String,
    },
    /// A GPU that serves none of our vGPUs.
    #[error(
        "GPU {name} at {address} is of the {architecture} architecture and can serve no vGPU: a guest's commands run on \
         it as they are, and it lacks classes of every chip that a vGPU can be ({}). Name another GPU, or use \
         backend = \"soft\", which serves all of them",
        known()
    )]
    NoChip {
        /// Marketing name of the GPU.
        name: String,
        /// PCI address of the function.
        address: String,
        /// Its architecture.
        architecture: String,
    },
    /// The file of the GPU names another chip.
    #[error(
        "GPU {name} at {address} cannot serve the chip {wanted}; it serves: {served}. Correct `chip`, or leave it out"
    )]
    OtherChip {
        /// Marketing name of the GPU.
        name: String,
        /// PCI address of the function.
        address: String,
        /// The chip that was named.
        wanted: Chip,
        /// Those that it can serve.
        served: String,
    },
    /// Another aggregator has the GPU.
    #[error(
        "GPU {name} at {address} is another aggregator's, which holds the lock of {node}. A GPU has one aggregator: end \
         the other one, or name another GPU (`device` in a GPU's file)"
    )]
    Taken {
        /// Marketing name of the GPU.
        name: String,
        /// PCI address of the function.
        address: String,
        /// The file whose lock (`flock`) is held.
        node: Node,
    },
    /// Not enough memory.
    #[error(
        "GPU {name} has {free} MiB of VRAM free, {wanted} MiB are wanted. Lower `vram`, or end what uses the GPU \
         (`nvidia-smi` lists it)"
    )]
    NotEnoughVram {
        /// Marketing name of the GPU.
        name: String,
        /// Free VRAM in MiB.
        free: u64,
        /// Wanted VRAM in MiB.
        wanted: u64,
    },
    /// Engines that a vGPU needs are not there.
    #[error(
        "GPU {name} lacks {what}, which every vGPU has. A GPU in MIG mode has fewer engines: switch that off \
         (`nvidia-smi -mig 0`)"
    )]
    MissingEngine {
        /// Marketing name of the GPU.
        name: String,
        /// What was meant, in words.
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

impl OpenError {
    /// A node that this process may not open.
    pub(super) fn node(node: Node, source: io::Error) -> Self {
        Self::Node { node, uid: rustix::process::geteuid().as_raw(), source }
    }
}

/// Names of the chips that the NVIDIA driver's GPUs can be.
fn known() -> String {
    Chip::list(Chip::with_face(Face::Gsp), "", ", ")
}
