//! Copies lines between two surfaces; a copy can pause between chunks and continue later. Also writes lines
//! that come from the command stream, word by word.

use super::clear::Clear;
use super::layout::{Layout, Surface};
use crate::engine::model::{Progress, Run};
use crate::mmu::channel_memory::CHUNK;
use gpuvmk_chip::channel_event::MmuFault;

/// Number of bytes that are copied between two looks at the clock. Each contiguous run counts as [`RUN_COST`]
/// bytes more. Memory that is touched for the first time takes some 2 us a page, more where little is left:
/// so many take less than 20 us even so, for which others wait who want the engine.
pub(super) const QUANTUM: u64 = 32 << 10;

/// Cost of finding a contiguous run, in bytes of copying.
pub(super) const RUN_COST: u64 = 512;

/// A copy of lines from one surface to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) source: Surface,
    pub(super) target: Surface,
    /// Bytes of a line.
    pub(super) length: u64,
    /// Number of lines.
    pub(super) count: u64,
}

/// Lines that are written from the command stream. Words follow each other without padding, also from one
/// line to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inline {
    pub(super) target: Surface,
    /// Bytes of a line, below 2^32.
    pub(super) length: u64,
    /// Lines, below 2^32.
    pub(super) count: u64,
}

impl Inline {
    /// Number of bytes of all lines.
    pub(super) fn total(&self) -> u64 {
        self.length.saturating_mul(self.count)
    }

    /// Stores a word after `done` bytes, and returns the number of bytes done then. Bytes of the word beyond
    /// the last line are dropped.
    pub(super) fn store(&self, run: &Run<'_>, done: u64, data: u32) -> Result<u64, MmuFault> {
        let mut at = done;
        let bytes = data.to_le_bytes();
        let mut rest = bytes.get(..).unwrap_or_default();
        while !rest.is_empty() && at < self.total() {
            let (line, column) = (at / self.length, at % self.length);
            let limit = (self.length - column).min(rest.len() as u64);
            let (va, length) = self.target.locate(line, column, limit);
            let (now, later) = rest.split_at(usize::try_from(length).unwrap_or(rest.len()));
            run.memory.write(va, now)?;
            rest = later;
            at += length;
        }
        Ok(at)
    }
}

/// Progress of a copy. As words, all zero is the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Position {
    /// Number of lines that are done.
    pub(super) line: u64,
    /// Number of bytes of the next line that are done.
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

    /// Gives the copy as a [`clear`](super::clear) of memory, if its one source line holds nothing but zeroes
    /// and its target is one piece of memory.
    fn as_clear(&self, run: &Run<'_>) -> Result<Option<Clear>, MmuFault> {
        let Some(clear) = Clear::of(self.target, self.length, self.count) else { return Ok(None) };
        let Some(size) = usize::try_from(self.length).ok().filter(|_| self.length <= CHUNK) else {
            return Ok(None);
        };
        let mut line = vec![0; size];
        let (from, _) = self.source.locate(0, 0, self.length);
        run.memory.read(from, &mut line)?;
        Ok(line.iter().all(|byte| *byte == 0).then_some(clear))
    }

    /// Copies from `position` on until the end or a pause.
    pub(super) fn advance(&self, run: &Run<'_>, position: &mut Position) -> Result<Progress, MmuFault> {
        let joined = self.joined();
        if joined.length == 0 {
            return Ok(Progress::Done);
        }
        // Every line has the same source: this clears or fills memory.
        let fills = joined.source.layout == Layout::Pitch(0) && joined.count > 1;
        if fills && let Some(clear) = joined.as_clear(run)? {
            let mut done = position.line.saturating_mul(joined.length).saturating_add(position.at);
            let progress = clear.advance(run, &mut done)?;
            *position = Position { line: done / joined.length, at: done % joined.length };
            return Ok(progress);
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
            if fills {
                run.memory.prepare_to_fill(to, bytes);
            }
            run.memory.copy(from, to, bytes)?;
            position.at += bytes;
            cost += bytes + RUN_COST;
            if cost >= QUANTUM {
                cost = 0;
                let over = position.at >= joined.length && position.line + 1 >= joined.count;
                if !over && run.control.should_pause() {
                    return Ok(Progress::Paused);
                }
            }
        }
        Ok(Progress::Done)
    }
}
