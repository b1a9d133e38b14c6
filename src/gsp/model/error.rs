//! What GSP does not take.

use crate::abi::status::Status;

/// Why GSP does not boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootError {
    /// An address of the boot arguments is not the guest's memory.
    #[error("GSP boot arguments name memory that is not there, at {0:#x}")]
    NoMemory(u64),
    /// The arguments contradict themselves, or the queues are not of the layout that is known.
    #[error("GSP boot arguments are not acceptable: {0}")]
    Arguments(&'static str),
    /// What GSP kept over a suspension, or what the driver says it is, cannot be taken.
    #[error("GSP cannot go on after a suspension with what the driver hands over: {0}")]
    Saved(#[from] SavedError),
}

impl BootError {
    /// What is wrong with arguments.
    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::NoMemory(_) => "their memory is not there",
            Self::Arguments(why) => why,
            Self::Saved(_) => "they were not kept",
        }
    }
}

/// Why what GSP keeps cannot be written, or what a driver hands over is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SavedError {
    /// An address is not the guest's memory.
    #[error("there is no memory of the guest's at {0:#x}")]
    NoMemory(u64),
    /// An address of a table is not that of a page.
    #[error("{0:#x} is not the address of a page")]
    NoPage(u64),
    /// The structure that names the memory is another one.
    #[error("the memory is not named by a GspFwSRMeta of revision 2: magic {magic:#x}, revision {revision}")]
    Unnamed {
        /// Its magic.
        magic: u64,
        /// Its revision.
        revision: u64,
    },
    /// The memory is too small.
    #[error("{room} bytes of memory are too few: {needed} are needed")]
    TooSmall {
        /// Bytes that there are.
        room: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// More than any state has.
    #[error("it is larger than any state of this GSP")]
    TooLarge,
    /// What is in the memory was not written by GSP.
    #[error("there is no state of a GSP in that memory")]
    NoState,
    /// It is of another version of gpuvmk.
    #[error("it has version {0} of the encoding, not 3")]
    Version(u32),
    /// It was changed or lost.
    #[error("its checksum is wrong")]
    Checksum,
    /// It ends in the middle of something.
    #[error("it ends too early")]
    Short,
    /// It goes on behind its end.
    #[error("something follows its end")]
    Rest,
    /// It was another GPU's.
    #[error("it is of a GPU with another {0}")]
    OtherGpu(&'static str),
    /// A number has no meaning.
    #[error("{0} is not one")]
    Meaningless(&'static str),
    /// The driver's firmware puts VRAM back that the driver has listed, and VRAM has lost it.
    #[error("VRAM was reset, and this driver counts on firmware to have saved it")]
    Vram,
    /// The queues cannot be where it says.
    #[error("the queues cannot be opened again: {0}")]
    Queues(&'static str),
    /// An object that a driver could not have allocated.
    #[error("object {client:#x}:{handle:#x} of class {class:#06x} cannot be made: {status} ({:#x})", status.code())]
    Object {
        /// Its client.
        client: u32,
        /// Its handle.
        handle: u32,
        /// Its class.
        class: u32,
        /// Why an allocation of it is refused.
        status: Status,
    },
}

/// Why a record is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// The driver's write pointer is outside its queue.
    #[error("The write pointer of the command queue is {0}, which is outside the queue")]
    WritePointer(u32),
    /// The queue's memory is not there (any more).
    #[error("The command queue's memory is gone")]
    NoMemory,
    /// The length in the header is smaller than the header, or larger than a record can be.
    #[error("A record of the command queue has a length of {0} bytes")]
    Length(u32),
    /// The record is longer than what the driver has written, or its two sizes contradict each other.
    #[error("A record of the command queue says {elements} elements, but has {length} bytes")]
    Elements {
        /// Elements that the header says.
        elements: u32,
        /// Bytes that the header says.
        length: u32,
    },
    /// The checksum is wrong.
    #[error("A record of the command queue (function {function}) has a wrong checksum")]
    Checksum {
        /// Function that it claims.
        function: u32,
        /// Its sequence number.
        sequence: u32,
    },
    /// Not an RPC header.
    #[error("A record of the command queue has no RPC header")]
    Header,
}
