//! Zeroing VRAM.

use super::GpuError;
use super::scrub::ScrubReport;
use gpuvmk_chip::addr::HostVram;

/// How a driver zeroes VRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubMode {
    /// An engine of the GPU does it.
    Engine,
    /// The processor does it at once, because tenants' VRAM is the host's memory. Nothing is gained by an
    /// engine.
    HostMemory,
    /// The processor does it through a window. An engine would be faster.
    Processor,
    /// As [`Self::Processor`], and VRAM is the memory of the files that
    /// [`share_vram`](super::GpuDriver::share_vram) gives. Memory that goes back to the host's kernel is zero
    /// afterwards.
    Files,
}

/// How far VRAM is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrub {
    /// The range is zero.
    Done,
    /// The range was zero already: it was untouched.
    Untouched,
    /// The GPU is working on it.
    Pending,
    /// The GPU has done its part, and the rest goes on at the next call.
    More,
}

/// Zeroes VRAM between two tenants. Every [`GpuDriver`](super::GpuDriver) is one.
///
/// Memory is zeroed in pieces. The caller asks for each until it is zero, and gives it to no tenant
/// meanwhile. [`GpuInfo::scrub`](super::GpuInfo::scrub) says how it is done.
pub trait Scrubber {
    /// Starts or continues to fill a range of tenants' VRAM with zeros, at most
    /// [`SCRUB_PIECE`](super::scrub::SCRUB_PIECE) bytes. Never waits. With [`Scrub::Pending`] and
    /// [`Scrub::More`], call again with the same range; meanwhile no tenant may have the memory.
    ///
    /// # Errors
    /// The range is not tenant memory, or hardware failed. Hardware may still write the memory later then.
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError>;

    /// True when a shared range may hold data of programs other than tenants. Then it must be zeroed before a
    /// tenant gets it, even if it was zeroed after the last one. False where all memory belongs to this
    /// driver from the start.
    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool;

    /// Statistics of zeroing since the start; `None` where they are not counted.
    fn scrub_report(&self) -> Option<ScrubReport>;
}
