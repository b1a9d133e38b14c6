//! Why a channel of a driver's kernel is stopped.

use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::stream::Method;
use gpuvmk_chip::{AccessKind, PhysicalAddress};

/// What in a channel's commands is not carried out. The channel goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// GP_PUT is behind the end of the ring.
    #[error("GP_PUT {gp_put:#x} is behind the last of {entries:#x} ring entries")]
    Put {
        /// What USERD says.
        gp_put: u32,
        /// Entries of the ring.
        entries: u64,
    },
    /// A ring entry without words that means nothing.
    #[error("the ring entry {0:#018x} has no words and no known operation")]
    Entry(u64),
    /// A word where a header is expected that is none.
    #[error("the word {0:#010x} is no header")]
    Header(u32),
    /// An object of a class that the driver's kernel has no use for on such a channel.
    #[error("class {0:#06x} has no objects on a channel of the driver's kernel")]
    Class(u16),
    /// A method that is not known, of a subchannel without an object, or with a value that is not carried
    /// out.
    #[error("method {:#06x} of subchannel {} with {:#010x} is not carried out", .0.method, .0.subchannel, .0.data)]
    Method(Method),
    /// A copy between surfaces made of blocks, of protected memory, or of another GPU's.
    #[error("a copy launched by {launch:#010x} is not carried out: {why}")]
    Copy {
        /// What launched it.
        launch: u32,
        /// What it has that is not carried out.
        why: &'static str,
    },
    /// An address that leads nowhere, or may not be written.
    #[error("{kind:?} at the virtual address {va}: nothing is mapped there for that")]
    Virtual {
        /// The address.
        va: GpuVa,
        /// Whether it was read or written.
        kind: AccessKind,
    },
    /// A physical address outside the guest's memory.
    #[error("{kind:?} at {address:?}: no memory of this guest is there")]
    Physical {
        /// The address.
        address: PhysicalAddress,
        /// Whether it was read or written.
        kind: AccessKind,
    },
    /// An address beyond the end of all.
    #[error("addresses behind {0:#x} do not exist")]
    Address(u64),
}
