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
    /// [`share_vram`](super::GpuDriver::share_vram) gives. What is given back to the host's kernel is zero
    /// then.
    Files,
}

/// How far VRAM is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrub {
    /// It is.
    Done,
    /// It was before: nobody has touched it.
    Untouched,
    /// The GPU is at it.
    Pending,
    /// The GPU has done its part, and the rest goes on at the next call.
    More,
}

/// What zeroes VRAM between two tenants: every [`GpuDriver`](super::GpuDriver) is one.
///
/// Memory is zeroed in pieces, each of which is asked for until it is zero. Nobody has a piece meanwhile.
/// [`GpuInfo::scrub`](super::GpuInfo::scrub) says how it is done.
pub trait Scrubber {
    /// Goes on with filling a range of tenants' VRAM with zeros, without waiting for anything: at most
    /// [`SCRUB_PIECE`](super::scrub::SCRUB_PIECE) bytes at a time. With [`Scrub::Pending`] and
    /// [`Scrub::More`], ask again with the same range, and let nobody have the memory meanwhile.
    ///
    /// # Errors
    /// The range is not tenant memory, or hardware failed. Hardware may still write the memory later then.
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError>;

    /// True when a range that was shared may hold what others than its tenants left there. It has to be
    /// zeroed before a tenant gets it, even if it was zeroed after the last one. False where memory is the
    /// driver's own from the start.
    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool;

    /// What was zeroed since the start; `None`: that is not counted.
    fn scrub_report(&self) -> Option<ScrubReport>;
}
