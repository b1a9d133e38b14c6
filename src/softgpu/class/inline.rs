//! Inline to memory, as Kepler and later have it: class a140, and the same methods in the 3D and compute
//! classes.

use super::layout::{Blocks, Gob, Layout, Surface};
use super::transfer::Inline;
use crate::engine::model::{Effects, Refusal, Run};
use crate::mmu::channel_memory::Report;
use crate::mmu::reduction::{Operand, Reduction};
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gh100::methods::graphics::intr;
use gpuvmk_chip::gh100::methods::inline::{self, launch};
use gpuvmk_chip::gh100::mmu::VA_MAX;

/// Words kept: methods 0x180 to 0x1fc.
const WORDS: usize = ((inline::LAST - inline::FIRST) / 4 + 1) as usize;

/// Words of [`InlineToMemory::save`].
pub(super) const SAVED_WORDS: usize = WORDS + 3;

/// The state of one class.
#[derive(Clone, Debug)]
pub(super) struct InlineToMemory {
    words: [u32; WORDS],
    /// Bytes written since the launch, while data is expected.
    done: Option<u64>,
}

impl Default for InlineToMemory {
    fn default() -> Self {
        Self { words: [0; WORDS], done: None }
    }
}

fn index(method: u16) -> Option<usize> {
    method.checked_sub(inline::FIRST).map(|distance| usize::from(distance / 4)).filter(|&index| index < WORDS)
}

impl InlineToMemory {
    fn word(&self, method: u16) -> u32 {
        index(method).and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }

    fn address(&self, upper: u16) -> u64 {
        (u64::from(self.word(upper)) << 32 | u64::from(self.word(upper + 4))) & VA_MAX
    }

    fn transfer(&self) -> Inline {
        let layout = if self.word(inline::LAUNCH_DMA) & launch::DST_PITCH != 0 {
            Layout::Pitch(i64::from(self.word(inline::PITCH_OUT).cast_signed()))
        } else {
            let shape = self.word(inline::SET_DST_BLOCK_SIZE);
            Layout::Blocks(Blocks {
                gob: Gob::Sectors,
                height_shift: (shape >> 4) & 7,
                depth_shift: (shape >> 8) & 7,
                width: self.word(inline::SET_DST_WIDTH).into(),
                height: self.word(inline::SET_DST_HEIGHT).into(),
                x: self.word(inline::SET_DST_ORIGIN_BYTES_X).into(),
                y: self.word(inline::SET_DST_ORIGIN_SAMPLES_Y).into(),
                z: self.word(inline::SET_DST_LAYER).into(),
            })
        };
        Inline {
            target: Surface { base: self.address(inline::OFFSET_OUT_UPPER), layout, va_max: VA_MAX },
            length: self.word(inline::LINE_LENGTH_IN).into(),
            count: self.word(inline::LINE_COUNT).into(),
        }
    }

    /// Executes a method if it is one of these.
    pub(super) fn method(
        &mut self,
        run: &Run<'_>,
        (class, method, data): (u16, u16, u32),
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if method == inline::LOAD_INLINE_DATA {
            let refused = Refusal::Graphics { status: intr::DATA_ERROR, class };
            let done = self.done.ok_or(refused)?;
            let transfer = self.transfer();
            let at = transfer.store(run, done, data)?;
            self.done = Some(at);
            if done < transfer.total() && at >= transfer.total() {
                self.complete(run, effects)?;
            }
            return Ok(());
        }
        if let Some(word) = index(method).and_then(|index| self.words.get_mut(index)) {
            *word = data;
            if method == inline::LAUNCH_DMA {
                self.done = Some(0);
                if self.transfer().total() == 0 {
                    self.complete(run, effects)?;
                }
            }
        }
        Ok(())
    }

    fn complete(&self, run: &Run<'_>, effects: &mut Effects) -> Result<(), MmuFault> {
        let data = self.word(inline::LAUNCH_DMA);
        if data >> launch::COMPLETION_SHIFT & 3 == launch::COMPLETION_RELEASE {
            let va = self.address(inline::SET_I2M_SEMAPHORE_A);
            let payload = self.word(inline::SET_I2M_SEMAPHORE_C).into();
            let reduction = Reduction::of_graphics(data >> launch::REDUCTION_SHIFT & 7);
            match reduction.filter(|_| data & launch::REDUCTION != 0) {
                Some(reduction) => {
                    let signed = data & launch::REDUCTION_SIGNED != 0;
                    run.memory.reduce(va, reduction, Operand::Word, signed, payload)?;
                }
                None => {
                    let one_word = data & launch::ONE_WORD != 0;
                    let report = if one_word { Report::Word } else { Report::FourWords };
                    run.memory.write_report(va, payload, report)?;
                }
            }
            effects.released = true;
        }
        effects.interrupt |= data & launch::INTERRUPT_MASK != 0;
        Ok(())
    }

    /// The state as words: what goes on in the first three, then the methods.
    pub(super) fn save(&self) -> impl Iterator<Item = u32> {
        let [low, high] = crate::words::halves(self.done.unwrap_or(0));
        [self.done.is_some().into(), low, high].into_iter().chain(self.words)
    }

    /// Takes over what [`InlineToMemory::save`] gave.
    pub(super) fn load(&mut self, words: &mut impl Iterator<Item = u32>) {
        let mut next = || words.next().unwrap_or(0);
        let expected = next() != 0;
        let done = u64::from(next()) | u64::from(next()) << 32;
        self.done = expected.then_some(done);
        for word in &mut self.words {
            *word = next();
        }
    }
}
