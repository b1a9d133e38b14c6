//! Class 9039, memory to memory format: copies lines between linear and block-linear surfaces, or writes
//! words of the command stream.
//!
//! Words of an inline transfer follow each other without padding, across lines too. Conditional execution is
//! not modelled.

use super::layout::{Blocks, Gob, Layout, Surface};
use super::transfer::{Inline, Position, Transfer};
use crate::engine::model::{Effects, Progress, Refusal, Run};
use crate::mmu::channel_memory::Report;
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gf100::methods::{lookup, m2mf};
use gpuvmk_chip::gf100::mmu::VA_MAX;
use gpuvmk_chip::gf100::regs::pgraph::NV_PGRAPH_INTR;

/// The first method whose word is kept.
const FIRST: u16 = 0x200;

/// Number of method words that are kept: methods 0x200 to 0x3fc.
const WORDS: usize = 0x80;

/// Number of words that [`M2mf::save`] gives.
pub(super) const SAVED_WORDS: usize = WORDS + 5;

/// The operation under way, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Activity {
    #[default]
    Idle,
    /// A copy, running or paused.
    Copy(Position),
    /// The class waits for words of the command stream. The number says how many bytes have been written.
    Inline(u64),
}

/// State of the class.
#[derive(Clone, Debug)]
pub(super) struct M2mf {
    words: [u32; WORDS],
    activity: Activity,
}

impl Default for M2mf {
    fn default() -> Self {
        Self { words: [0; WORDS], activity: Activity::Idle }
    }
}

fn index(method: u16) -> Option<usize> {
    method.checked_sub(FIRST).map(|distance| usize::from(distance / 4)).filter(|&index| index < WORDS)
}

impl M2mf {
    fn word(&self, method: u16) -> u32 {
        index(method).and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }

    fn address(&self, high: u16) -> u64 {
        u64::from(m2mf::OFFSET_IN_HIGH::OFFSET_UPPER.get(self.word(high))) << 32
            | u64::from(self.word(high + 4))
    }

    /// Tiling methods come in a fixed order: mode, pitch, height, depth, z.
    fn blocks(&self, mode: u16, x: u16) -> Blocks {
        let shape = self.word(mode);
        Blocks {
            gob: Gob::Lines,
            height_shift: m2mf::TILING_MODE_IN::HEIGHT.get(shape),
            depth_shift: m2mf::TILING_MODE_IN::DEPTH.get(shape),
            width: u64::from(self.word(mode + 4)),
            height: u64::from(self.word(mode + 8)),
            x: u64::from(self.word(x)),
            y: u64::from(self.word(x + 4)),
            z: u64::from(self.word(mode + 16)),
        }
    }

    fn source(&self) -> Surface {
        let layout = if m2mf::EXEC::LINEAR_IN.is_set(self.word(m2mf::EXEC)) {
            Layout::Pitch(i64::from(self.word(m2mf::PITCH_IN).cast_signed()))
        } else {
            Layout::Blocks(self.blocks(m2mf::TILING_MODE_IN, m2mf::TILING_POSITION_IN_X))
        };
        Surface { base: self.address(m2mf::OFFSET_IN_HIGH), layout, va_max: VA_MAX }
    }

    fn target(&self) -> Surface {
        let layout = if m2mf::EXEC::LINEAR_OUT.is_set(self.word(m2mf::EXEC)) {
            Layout::Pitch(i64::from(self.word(m2mf::PITCH_OUT).cast_signed()))
        } else {
            Layout::Blocks(self.blocks(m2mf::TILING_MODE_OUT, m2mf::TILING_POSITION_OUT_X))
        };
        Surface { base: self.address(m2mf::OFFSET_OUT_HIGH), layout, va_max: VA_MAX }
    }

    fn length(&self) -> u64 {
        u64::from(self.word(m2mf::LINE_LENGTH_IN))
    }

    fn count(&self) -> u64 {
        u64::from(self.word(m2mf::LINE_COUNT))
    }

    /// Executes one of the class's own methods.
    pub(super) fn method(
        &mut self,
        run: &Run<'_>,
        method: u16,
        data: u32,
        effects: &mut Effects,
    ) -> Result<Progress, Refusal> {
        if lookup(m2mf::CLASS, method).is_none() {
            return Err(Refusal::Graphics {
                status: NV_PGRAPH_INTR::ILLEGAL_METHOD.mask(),
                class: m2mf::CLASS,
            });
        }
        match method {
            m2mf::DATA => {
                self.inline(run, data, effects)?;
                return Ok(Progress::Done);
            }
            _ => {
                if let Some(word) = index(method).and_then(|index| self.words.get_mut(index)) {
                    *word = data;
                }
            }
        }
        if method != m2mf::EXEC {
            return Ok(Progress::Done);
        }
        if m2mf::EXEC::PUSH.is_set(data) {
            self.activity = Activity::Inline(0);
            return Ok(Progress::Done);
        }
        self.activity = Activity::Copy(Position::default());
        self.resume(run, effects)
    }

    /// Continues the copy, if one is under way.
    pub(super) fn resume(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal> {
        let Activity::Copy(mut position) = self.activity else { return Ok(Progress::Done) };
        let transfer = Transfer {
            source: self.source(),
            target: self.target(),
            length: self.length(),
            count: self.count(),
        };
        let progress =
            transfer.advance(run, &mut position).inspect_err(|_| self.activity = Activity::Idle)?;
        match progress {
            Progress::Paused => self.activity = Activity::Copy(position),
            Progress::Done => {
                self.activity = Activity::Idle;
                self.complete(run, effects)?;
            }
        }
        Ok(progress)
    }

    fn inline(&mut self, run: &Run<'_>, data: u32, effects: &mut Effects) -> Result<(), Refusal> {
        let Activity::Inline(done) = self.activity else {
            return Err(Refusal::Graphics { status: NV_PGRAPH_INTR::CLASS_ERROR.mask(), class: m2mf::CLASS });
        };
        let inline = Inline { target: self.target(), length: self.length(), count: self.count() };
        let at = inline.store(run, done, data)?;
        self.activity = Activity::Inline(at);
        if done < inline.total() && at >= inline.total() {
            self.complete(run, effects)?;
        }
        Ok(())
    }

    fn complete(&self, run: &Run<'_>, effects: &mut Effects) -> Result<(), MmuFault> {
        let exec = self.word(m2mf::EXEC);
        if m2mf::EXEC::QUERY.get(exec) == m2mf::EXEC::QUERY::WRITE {
            let short = m2mf::EXEC::QUERY_SHORT.is_set(exec);
            let va = self.address(m2mf::QUERY_ADDRESS_HIGH);
            let report = if short { Report::Word } else { Report::FourWords };
            run.memory.write_report(va, self.word(m2mf::QUERY_SEQUENCE).into(), report)?;
            effects.released = true;
        }
        if m2mf::EXEC::INTERRUPT.is_set(exec) {
            effects.interrupt = true;
        }
        Ok(())
    }

    /// The state as words: the operation under way in the first five, then the methods.
    pub(super) fn save(&self) -> impl Iterator<Item = u32> {
        let (kind, first, second) = match self.activity {
            Activity::Idle => (0, 0, 0),
            Activity::Copy(position) => (1, position.line, position.at),
            Activity::Inline(done) => (2, done, 0),
        };
        let halves =
            |word: u64| [word & 0xffff_ffff, word >> 32].map(|half| u32::try_from(half).unwrap_or(0));
        let [a, b] = halves(first);
        let [c, d] = halves(second);
        [kind, a, b, c, d].into_iter().chain(self.words)
    }

    /// Restores the state from the words that [`M2mf::save`] gave.
    pub(super) fn load(&mut self, words: &mut impl Iterator<Item = u32>) {
        let mut next = || words.next().unwrap_or(0);
        let kind = next();
        let first = u64::from(next()) | u64::from(next()) << 32;
        let second = u64::from(next()) | u64::from(next()) << 32;
        self.activity = match kind {
            1 => Activity::Copy(Position { line: first, at: second }),
            2 => Activity::Inline(first),
            _ => Activity::Idle,
        };
        for word in &mut self.words {
            *word = next();
        }
    }
}
