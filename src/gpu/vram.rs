//! VRAM: how it is taken back, the host's own part, and its granules.

use super::GpuError;
use gpuvmk_chip::addr::HostVram;

/// How far memory was taken back from its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// No process has any of it.
    Done,
    /// Another thread continues: ask again a little later.
    Waits,
    /// A process still has it, through a file or a mapping that cannot be taken away.
    Held,
}

/// VRAM of the host's own, for channels of the host's own.
///
/// No tenant ever gets this memory. Allocations last as long as the driver lives.
pub trait OwnMemory {
    /// Allocates `size` zeroed bytes, a power of two, at a multiple of it. They are never freed.
    ///
    /// # Errors
    /// There is not so much.
    fn take(&mut self, size: u64) -> Result<HostVram, GpuError>;

    /// Writes what engines read.
    ///
    /// # Errors
    /// It is not the host's own memory.
    fn write(&mut self, at: HostVram, data: &[u8]) -> Result<(), GpuError>;

    /// Reads what engines wrote.
    ///
    /// # Errors
    /// It is not the host's own memory.
    fn read(&mut self, at: HostVram, data: &mut [u8]) -> Result<(), GpuError>;
}

/// The granules that end in `[start, start + size)`: a pass through memory piece by piece is done with them
/// then. The last one ends with the memory, at `limit`.
pub fn granules_that_end_in(
    start: u64,
    size: u64,
    granule: u64,
    limit: u64,
) -> impl Iterator<Item = (u64, u64)> {
    let granule = granule.max(1);
    let (end, first) = (start.saturating_add(size).min(limit), start / granule);
    (first..end.div_ceil(granule)).filter_map(move |index| {
        let from = index.saturating_mul(granule);
        let to = from.saturating_add(granule).min(limit);
        (to <= end).then(|| (from, to.saturating_sub(from)))
    })
}
