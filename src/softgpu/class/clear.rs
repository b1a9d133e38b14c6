//! Zeroes memory that lies in one piece. Whole pages of VRAM are given back to the host's kernel, which shows
//! zeroes at the next access; that is faster than writing every byte.

use super::layout::{Layout, Surface};
use crate::engine::model::{Progress, Run};
use gpuvmk_chip::channel_event::MmuFault;

/// Number of bytes that are zeroed between two looks at the clock.
const STEP: u64 = 1 << 20;

/// A contiguous range of a surface that is to be zeroed, from the beginning of its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clear {
    target: Surface,
    total: u64,
}

impl Clear {
    /// Makes one range of `count` lines of `length` bytes. `None` if there are gaps between the lines, or if
    /// the range is too small to gain anything.
    pub(super) fn of(target: Surface, length: u64, count: u64) -> Option<Self> {
        let Layout::Pitch(pitch) = target.layout else { return None };
        let gapless = count == 1 || u64::try_from(pitch) == Ok(length);
        let total = length.checked_mul(count).filter(|total| gapless && *total >= STEP / 16)?;
        Some(Self { target, total })
    }

    /// Continues after `done` bytes, and stops at the end or when it has to pause.
    pub(super) fn advance(&self, run: &Run<'_>, done: &mut u64) -> Result<Progress, MmuFault> {
        while *done < self.total {
            let (va, bytes) = self.target.locate(0, *done, (self.total - *done).min(STEP));
            run.memory.clear(va, bytes)?;
            *done += bytes;
            if *done < self.total && run.control.should_pause() {
                return Ok(Progress::Paused);
            }
        }
        Ok(Progress::Done)
    }
}
