//! A back's memory, as the windows read and write it.

use gpuvmk_backend::GspBackend;
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_mmio_trap::PhysicalMemory;

/// The back's memory.
pub struct VramMemory<'a, B>(pub &'a B);

impl<B: GspBackend> PhysicalMemory for VramMemory<'_, B> {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.0.read_memory(address, data).is_ok()
    }

    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.0.read_tables(address, data).is_ok()
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        self.0.write_memory(address, data).is_ok()
    }
}

/// The back's memory that only the CPU writes.
pub struct TableMemory<'a, B>(pub &'a B);

impl<B: GspBackend> PhysicalMemory for TableMemory<'_, B> {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.0.read_tables(address, data).is_ok()
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        self.0.write_memory(address, data).is_ok()
    }
}
