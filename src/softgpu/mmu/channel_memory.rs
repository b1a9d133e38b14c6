//! Memory as a channel's work sees it: by virtual address, in the channel's own address space.

use super::near::Near;
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::reduction::{Operand, Reduction};

/// Number of bytes that one access moves before it lets a TLB flush pass.
pub(crate) const CHUNK: u64 = 32 << 10;

/// The form of a report in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// 32 bits of value.
    Word,
    /// 64 bits of value.
    DoubleWord,
    /// 64 bits of value, and 64 bits of time.
    FourWords,
}

/// Memory of a channel. An access of more than a page is not atomic: each page is translated by itself, and
/// what was done before a fault stays done.
pub(crate) trait ChannelMemory: std::fmt::Debug + Sync {
    /// Reads `data.len()` bytes.
    fn read(&self, va: u64, data: &mut [u8]) -> Result<(), MmuFault>;

    /// Writes `data`.
    fn write(&self, va: u64, data: &[u8]) -> Result<(), MmuFault>;

    /// The same as [`ChannelMemory::read`], for one who has translations at hand: always `near` of his own.
    fn load(&self, _near: &mut Near, va: u64, data: &mut [u8]) -> Result<(), MmuFault> {
        self.read(va, data)
    }

    /// The same as [`ChannelMemory::write`], for such a one.
    fn store(&self, _near: &mut Near, va: u64, data: &[u8]) -> Result<(), MmuFault> {
        self.write(va, data)
    }

    /// Copies `size` bytes.
    fn copy(&self, from: u64, to: u64, size: u64) -> Result<(), MmuFault>;

    /// Makes `[va, va + size)` zeros.
    fn clear(&self, va: u64, size: u64) -> Result<(), MmuFault>;

    /// Says that all of `[va, va + size)` is about to be written. What cannot be written is met when it is.
    fn prepare_to_fill(&self, va: u64, size: u64);

    /// Writes a report as semaphores and queries do. The value lands last, so that whoever waits for it finds
    /// the rest.
    fn write_report(&self, va: u64, value: u64, report: Report) -> Result<(), MmuFault>;

    /// Writes the time where a report of 16 bytes at `va` has it.
    fn write_time(&self, va: u64) -> Result<(), MmuFault>;

    /// Replaces an aligned word by what `change` makes of it, in one step for everybody else; `None` leaves
    /// it. Returns the word before. A word that is not aligned is not there.
    fn update_u32(&self, va: u64, change: &mut dyn FnMut(u32) -> Option<u32>) -> Result<u32, MmuFault>;

    /// The same for a double word.
    fn update_u64(&self, va: u64, change: &mut dyn FnMut(u64) -> Option<u64>) -> Result<u64, MmuFault>;

    /// Combines the value at `va` with an operand, in one step for everybody else.
    fn reduce(
        &self,
        va: u64,
        reduction: Reduction,
        operand: Operand,
        signed: bool,
        by: u64,
    ) -> Result<(), MmuFault>;
}
