//! A copy of lines between two surfaces, which can pause between chunks and be taken up again.

use super::layout::{Layout, Surface};
use super::{Progress, Run};
use crate::softgpu::access::CHUNK;
use crate::units::backend::MmuFault;

/// Work between two looks at the clock, in bytes; a run of any size counts [`RUN_COST`] bytes more.
const QUANTUM: u64 = 128 << 10;

/// What finding a run costs, in bytes of copying.
const RUN_COST: u64 = 512;

/// A copy: what, and from where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) source: Surface,
    pub(super) target: Surface,
    /// Bytes of a line.
    pub(super) length: u64,
    /// Lines.
    pub(super) count: u64,
}

/// How far it got. Zero words are the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Position {
    /// Lines that are done.
    pub(super) line: u64,
    /// Bytes of the next one that are done.
    pub(super) at: u64,
}

impl Transfer {
    /// The same copy as one long line, where lines follow each other without gaps on both sides.
    fn joined(self) -> Self {
        let gapless = |surface: Surface| matches!(surface.layout, Layout::Pitch(pitch) if u64::try_from(pitch) == Ok(self.length));
        match self.length.checked_mul(self.count) {
            Some(length) if gapless(self.source) && gapless(self.target) => {
                Self { length, count: u64::from(length > 0), ..self }
            }
            _ => self,
        }
    }

    /// Copies from `position` on until the end or a pause.
    pub(super) fn advance(&self, run: &Run<'_>, position: &mut Position) -> Result<Progress, MmuFault> {
        let joined = self.joined();
        if joined.length == 0 {
            return Ok(Progress::Done);
        }
        let mut cost = 0;
        while position.line < joined.count {
            let left = joined.length.saturating_sub(position.at);
            if left == 0 {
                position.line += 1;
                position.at = 0;
                continue;
            }
            let (from, bytes) = joined.source.locate(position.line, position.at, left.min(CHUNK));
            let (to, bytes) = joined.target.locate(position.line, position.at, bytes);
            run.client.copy(from, to, bytes)?;
            position.at += bytes;
            cost += bytes + RUN_COST;
            if cost >= QUANTUM {
                cost = 0;
                if run.control.should_pause() {
                    return Ok(Progress::Paused);
                }
            }
        }
        Ok(Progress::Done)
    }
}
