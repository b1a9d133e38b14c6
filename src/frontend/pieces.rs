//! Accesses of any length to what takes aligned ones: a function gets accesses to its BARs naturally aligned
//! and at most 8 bytes long, whatever the guest or the client asks for. Configuration space and ROM are
//! served as they come.

use gpuvmk_pci::{AccessError, PciFunction, Region, RegionKind};

/// True if accesses to a region of this kind are cut.
pub const fn is_cut(kind: RegionKind) -> bool {
    match kind {
        RegionKind::Config | RegionKind::Rom | RegionKind::Absent => false,
        RegionKind::Memory32 | RegionKind::Memory64Prefetch | RegionKind::Io => true,
    }
}

/// Bytes of the next piece at `offset`, with `left` bytes to go: the largest aligned one.
fn piece(cut: bool, offset: u64, left: usize) -> usize {
    if !cut {
        return left;
    }
    let fits = |size: &&usize| **size <= left && offset.is_multiple_of(**size as u64);
    [8, 4, 2].iter().find(fits).copied().unwrap_or(1).min(left)
}

/// Reads, piece by piece.
///
/// # Errors
/// Those of the function; pieces before the one that failed have been read.
pub fn read(
    function: &dyn PciFunction,
    region: Region,
    cut: bool,
    offset: u64,
    data: &mut [u8],
) -> Result<(), AccessError> {
    let (mut rest, mut offset) = (data, offset);
    while !rest.is_empty() {
        let size = piece(cut, offset, rest.len());
        let (now, later) = rest.split_at_mut(size);
        function.read(region, offset, now)?;
        offset = offset.saturating_add(size as u64);
        rest = later;
    }
    Ok(())
}

/// Writes, piece by piece.
///
/// # Errors
/// Those of the function; pieces before the one that failed have been written.
pub fn write(
    function: &dyn PciFunction,
    region: Region,
    cut: bool,
    offset: u64,
    data: &[u8],
) -> Result<(), AccessError> {
    let (mut rest, mut offset) = (data, offset);
    while !rest.is_empty() {
        let size = piece(cut, offset, rest.len());
        let (now, later) = rest.split_at(size);
        function.write(region, offset, now)?;
        offset = offset.saturating_add(size as u64);
        rest = later;
    }
    Ok(())
}
