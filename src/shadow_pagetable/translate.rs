//! One address, translated by a guest's tables as they are now: for who reads a little of what a guest's GPU
//! reads.

use super::GuestMemory;
use super::format::{Entry, MmuFormat, SubTable};
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::GpuVa;

/// Where a virtual address leads, and how many bytes of its page begin there.
pub fn translate<F: MmuFormat>(
    format: &F,
    directory: PhysicalAddress,
    va: GpuVa,
    memory: &impl GuestMemory,
) -> Option<(PhysicalAddress, u64)> {
    let root = SubTable { kind: format.root(), address: directory };
    let shape = format.shape(root.kind);
    let reaches = va.0.checked_shr(shape.entry_shift.into())? < u64::from(shape.entries);
    if reaches { walk(format, root, va, memory) } else { None }
}

/// Tables name tables of lower kinds only, so it goes a few levels down.
fn walk<F: MmuFormat>(
    format: &F,
    table: SubTable,
    va: GpuVa,
    memory: &impl GuestMemory,
) -> Option<(PhysicalAddress, u64)> {
    let shape = format.shape(table.kind);
    let index = va.0.checked_shr(shape.entry_shift.into())?.checked_rem(shape.entries.into())?;
    let offset = index.checked_mul(shape.entry_size as u64)?;
    let address = table.address.address.checked_add(offset)?;
    let mut raw = [0; 16];
    memory.read(PhysicalAddress { address, ..table.address }, raw.get_mut(..shape.entry_size)?).ok()?;
    match format.decode(table.kind, u128::from_le_bytes(raw)) {
        Entry::Empty | Entry::Refused => None,
        Entry::Page(leaf) => {
            let size = 1_u64.checked_shl(shape.entry_shift.into())?;
            let inside = va.0.checked_rem(size)?;
            let address = leaf.target.address.checked_add(inside)?;
            Some((PhysicalAddress { address, ..leaf.target }, size.checked_sub(inside)?))
        }
        Entry::Tables(tables) => tables
            .into_iter()
            .flatten()
            .filter(|below| below.kind < table.kind)
            .find_map(|below| walk(format, below, va, memory)),
    }
}
