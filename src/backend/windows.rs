//! Windows to memory that have separate memory in the back.

use gpuvmk_chip::PhysicalAddress;
use gpuvmk_pci::SharedMemory;

/// The page tables that a window goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowTables {
    /// The uppermost one.
    pub table: PhysicalAddress,
    /// It is a root directory; false: it is what the first entry of one names.
    pub is_root: bool,
    /// Virtual addresses are below this.
    pub end: u64,
}

/// A back with separate memory for BAR3 and PRAMIN, so that a front end can map both for good.
///
/// The face sets the position of each window. The back keeps the content that the guest must find there in
/// that memory, wherever page tables or the window's register point.
pub trait Windows: Send + Sync {
    /// Memory for the first bytes of BAR3.
    ///
    /// # Errors
    /// It cannot be shared, or its last client is gone and there was no reset since.
    fn bar3_memory(&self) -> std::io::Result<SharedMemory>;

    /// Memory for PRAMIN.
    ///
    /// # Errors
    /// It cannot be shared, or its last client is gone and there was no reset since.
    fn pramin_memory(&self) -> std::io::Result<SharedMemory>;

    /// BAR3 may show something else from now on: it goes through `tables`, or through none.
    fn show_bar3(&self, tables: Option<WindowTables>);

    /// PRAMIN shows VRAM from `start` on. `None`: it shows something else, of which the back has nothing.
    fn show_pramin(&self, start: Option<u64>);

    /// What processors stored where BAR3 shows a page at several places is at all of them when this returns.
    /// The face calls it before and after it serves an access.
    fn settle(&self);

    /// The client is gone that was given [`Self::bar3_memory`] and [`Self::pramin_memory`]. From the next
    /// reset on they are other memory, and none is given before.
    fn client_gone(&self);
}
