//! Zeroing of memory that lies in one piece. Hardware has ways that are faster than to write every byte;
//! here, whole pages of video memory go back to the system, which has zeros for whoever looks at them again.

use super::layout::{Layout, Surface};
use crate::engine::model::{Progress, Run};
use gpuvmk_chip::channel_event::MmuFault;

/// Bytes between two looks at the clock.
const STEP: u64 = 1 << 20;

/// Bytes that follow each other from the beginning of a surface's first line on, all to be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clear {
    target: Surface,
    total: u64,
}

impl Clear {
    /// `count` lines of `length` bytes, if they lie without gaps; nobody gains by it where there are few
    /// bytes.
    pub(super) fn of(target: Surface, length: u64, count: u64) -> Option<Self> {
        let Layout::Pitch(pitch) = target.layout else { return None };
        let gapless = count == 1 || u64::try_from(pitch) == Ok(length);
        let total = length.checked_mul(count).filter(|total| gapless && *total >= STEP / 16)?;
        Some(Self { target, total })
    }

    /// Goes on after `done` bytes until the end or a pause.
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
