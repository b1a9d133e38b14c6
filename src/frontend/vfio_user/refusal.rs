//! Why a command is refused, and the errno for the client.

use super::wire::command;
use gpuvmk_pci::{AccessError, DmaError};

/// A refused command. The device is as before, except for the writes of a `REGION_WRITE_MULTI` that came
/// before the refused one.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The body does not have the bytes that the command needs.
    #[error("{} has a body of {size} bytes, {expected} expected", command::name(*.command))]
    BodySize {
        /// Command number of the protocol.
        command: u16,
        /// Bytes that came.
        size: usize,
        /// Bytes that fit.
        expected: &'static str,
    },
    /// A field holds what it must not.
    #[error("{}: {field} is {value:#x}; {allowed}", command::name(*.command))]
    Field {
        /// Command number of the protocol.
        command: u16,
        /// Name of the field.
        field: &'static str,
        /// The value that it held.
        value: u64,
        /// The values that it may hold.
        allowed: &'static str,
    },
    /// The message brings a wrong number of descriptors, or more than arrived here.
    #[error("{} brings {count} descriptors; {allowed}", command::name(*.command))]
    Descriptors {
        /// Command number of the protocol.
        command: u16,
        /// How many came.
        count: usize,
        /// How many may.
        allowed: &'static str,
    },
    /// The guest's RAM cannot be reached: the client keeps its memory to itself.
    #[error(
        "Guest memory at {0:#x} came without a file descriptor, so the GPU cannot reach it: start QEMU with \
         -object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem"
    )]
    PrivateMemory(u64),
    /// A descriptor that is no eventfd.
    #[error("A descriptor for an interrupt is no eventfd")]
    NotAnEventFd,
    /// A descriptor or thread cannot be set up.
    #[error("An interrupt descriptor cannot be used")]
    InterruptSetUp(#[source] std::io::Error),
    /// Version data that is not the JSON that the protocol describes.
    #[error("The version data cannot be used: {0}")]
    VersionData(String),
    /// A command that the protocol has and this server does not offer.
    #[error("{} is not offered by this server", command::name(*.0))]
    NotOffered(u16),
    /// An interrupt type that VFIO has and the device has not. QEMU asks for it at every start; an answer
    /// with no vectors instead would make it warn.
    #[error("The device has no interrupt type {0} (0 is INTx, 1 MSI, 2 MSI-X)")]
    NoIrqType(u32),
    /// A device feature: none is offered.
    #[error("The device has no optional features (migration, dirty pages)")]
    NoFeature,
    /// A number that is no command from a client.
    #[error("{0} is no command that a client sends")]
    UnknownCommand(u16),
    /// Neither a command nor a reply.
    #[error("A message of type {0:#x} is neither a command nor a reply")]
    MessageType(u32),
    /// A command before, or a second, negotiation.
    #[error("{} at the wrong time: {rule}", command::name(*.command))]
    Order {
        /// Command number of the protocol.
        command: u16,
        /// The rule that was broken.
        rule: &'static str,
    },
    /// The function refused an access.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The function refused a change of reachable memory.
    #[error(transparent)]
    Dma(#[from] DmaError),
}

impl Refusal {
    /// True for the answer to a question that well-behaved clients ask: no cause for a warning.
    pub(super) const fn answers_a_probe(&self) -> bool {
        matches!(self, Self::NoIrqType(_) | Self::NoFeature)
    }

    /// The errno for the reply; never 0, which QEMU would take for success.
    pub(super) const fn errno(&self) -> i32 {
        match self {
            Self::BodySize { .. }
            | Self::Field { .. }
            | Self::Descriptors { .. }
            | Self::PrivateMemory(_)
            | Self::NotAnEventFd
            | Self::VersionData(_)
            | Self::UnknownCommand(_)
            | Self::MessageType(_)
            | Self::NoIrqType(_)
            | Self::Order { .. }
            | Self::Access(AccessError::NoRegion(_) | AccessError::OutOfRange { .. })
            | Self::Dma(DmaError::Invalid { .. }) => libc::EINVAL,
            Self::InterruptSetUp(_) => libc::ENOMEM,
            Self::NotOffered(_) => libc::EOPNOTSUPP,
            // The kernel's VFIO answers so to an unknown feature.
            Self::NoFeature => libc::ENOTTY,
            Self::Access(AccessError::DeviceLost) | Self::Dma(DmaError::DeviceLost) => libc::EIO,
            Self::Dma(DmaError::Overlap { .. }) => libc::EEXIST,
            Self::Dma(DmaError::NotMapped { .. }) => libc::ENOENT,
            Self::Dma(DmaError::TooMany(_)) => libc::ENOSPC,
            Self::Dma(DmaError::Backing { .. }) => libc::EFAULT,
        }
    }
}
