//! The seam to the guest's memory.

use crate::fault::MemoryFault;

/// Width of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 4 bytes.
    Word,
    /// 8 bytes.
    Double,
}

/// What one worker sees of an address space: global memory, by virtual address. A view may keep translations.
pub trait View {
    /// Loads consecutive words. The address is a multiple of 4; a range may cross pages.
    ///
    /// # Errors
    /// The first address that may not be read.
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault>;

    /// Loads one byte.
    ///
    /// # Errors
    /// As for [`View::load`].
    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault>;

    /// Stores consecutive words. The address is a multiple of 4. Words before the one that faults may be
    /// stored.
    ///
    /// # Errors
    /// The first address that may not be written.
    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault>;

    /// Stores one byte, and none beside it.
    ///
    /// # Errors
    /// As for [`View::store`].
    fn store_byte(&mut self, address: u64, byte: u8) -> Result<(), MemoryFault>;

    /// Replaces a value by what `change` makes of it, as one step for everybody who uses the memory, and
    /// gives the former one. `change` may be called more than once. The address is a multiple of the width.
    ///
    /// # Errors
    /// The address, if it may not be changed.
    fn update(
        &mut self,
        address: u64,
        width: Width,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryFault>;

    /// Nanoseconds, for GLOBALTIMER.
    fn timer(&mut self) -> u64;
}

/// An address space that workers look at.
pub trait Memory: Sync {
    /// A view for one worker.
    fn view(&self) -> Box<dyn View + '_>;
}
