//! Shadow page tables: what a guest's GPU page tables say, found by walking them in the guest's own memory.
//!
//! The guest writes its tables freely. When it invalidates the TLB, [`ShadowSpace::sync`] copies every table
//! page once and compares the copy with the snapshot of the last synchronisation. It looks only at entries
//! that changed, many alike at a time, and emits coalesced runs to map and to unmap. The runs are in the
//! guest's own terms; the writer of the tables that hardware reads checks and translates them again.
//!
//! The snapshot is by definition the content of the shadow. An entry that could not be shadowed (its target
//! is not the guest's memory) is stored as empty, so that every later synchronisation looks at it again.
//!
//! Pages of different sizes are separate layers, as in hardware: a directory entry may name a table of small
//! and one of large pages for the same range, and the layers are shadowed as they are. The hardware that
//! walks the shadow decides which one wins. Consequence: where a small page's target is refused, an address
//! falls through to the large page below it, if there is one, instead of faulting.
//!
//! Not handled: the privileged bit (all shadow mappings are for unprivileged use), compression tags, the
//! limit of an address space (the walk covers the whole virtual range of the format).

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod alike_entries;
mod budget;
mod error;
mod fermi;
mod format;
mod gmmu;
mod packed;
mod piece;
mod runs;
mod space;
mod table;
#[cfg(test)]
mod tests;
mod translate;

pub use budget::{Budget, Limits, WalkRefusal};
pub use error::SyncError;
pub use fermi::Fermi;
pub use format::{Emptiness, Entry, Leaf, MmuFormat, Shape, SubTable, TableKind, WindowFormat};
pub use runs::{MAX_BATCH, MapRun, RunCount, RunSink, Runs, UnmapRun};
pub use space::{ShadowSpace, SyncReport};
pub use translate::translate;

use gpuvmk_chip::PhysicalAddress;

/// A range that is not all in the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotGuestMemory;

/// Version of a page's content, see [`GuestMemory::version`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub u64);

/// The guest's memory, as its page tables see it.
pub trait GuestMemory {
    /// Copies memory by physical address.
    ///
    /// # Errors
    /// The range is not all in the guest's memory.
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuestMemory>;

    /// A number for what is in `size` bytes at `address` now: the same number, at the same address, means the
    /// same contents. `None` where that is not known.
    fn version(&self, _address: PhysicalAddress, _size: usize) -> Option<Version> {
        None
    }

    /// True when all of the range is memory that the guest's GPU may use.
    fn contains(&self, address: PhysicalAddress, size: u64) -> bool;
}
