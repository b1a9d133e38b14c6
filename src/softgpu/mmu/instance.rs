//! Instance blocks: where the MMU, the host unit and engines find what belongs to a channel.

use crate::vram::memory::Memory;
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::gf100::ramin::INSTANCE_SIZE;

/// Bytes of an instance block that are read: up to the last engine pointer.
pub(crate) const INSTANCE_READ: usize = 0x280;
const _: () = assert!(INSTANCE_READ as u64 <= INSTANCE_SIZE);

/// The start of an instance block; as much as this room needs of it.
pub(crate) fn read_instance(memory: &Memory, instance: PhysicalAddress) -> Option<[u8; INSTANCE_READ]> {
    let mut block = [0; INSTANCE_READ];
    memory.read(instance, &mut block).ok()?;
    Some(block)
}
