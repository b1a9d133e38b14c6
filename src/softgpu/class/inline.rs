//! Inline to memory: writes words of the command stream to a surface. Class a140 has these methods since
//! Kepler, and so have the 3D and compute classes.

use super::layout::{Blocks, Gob, Layout, Surface};
use super::transfer::Inline;
use crate::engine::model::{Effects, Refusal, Run};
use crate::mmu::channel_memory::Report;
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gh100::methods::graphics::NV_PGRAPH_INTR;
use gpuvmk_chip::gh100::methods::inline::{self, LAUNCH_DMA};
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::reduction::{Operand, Reduction};

/// Addresses of these classes are as wide as the widest page tables' are.
const VA_MAX: u64 = Gmmu::V3.va_max();

/// Number of method words that are kept: methods 0x180 to 0x1fc.
const WORDS: usize = ((inline::LAST - inline::FIRST) / 4 + 1) as usize;

/// Number of words that [`InlineToMemory::save`] gives.
pub(super) const SAVED_WORDS: usize = WORDS + 3;

/// State of the methods in one class.
#[derive(Clone, Debug)]
pub(super) struct InlineToMemory {
    words: [u32; WORDS],
    /// Number of bytes written since the launch; `None` while no data is expected.
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
        let layout = if LAUNCH_DMA::DST_MEMORY_LAYOUT.is_set(self.word(LAUNCH_DMA)) {
            Layout::Pitch(i64::from(self.word(inline::PITCH_OUT).cast_signed()))
        } else {
            let shape = self.word(inline::SET_DST_BLOCK_SIZE);
            Layout::Blocks(Blocks {
                gob: Gob::Sectors,
                height_shift: inline::SET_DST_BLOCK_SIZE::HEIGHT.get(shape),
                depth_shift: inline::SET_DST_BLOCK_SIZE::DEPTH.get(shape),
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

    /// Executes the method if it belongs to inline to memory.
    pub(super) fn method(
        &mut self,
        run: &Run<'_>,
        (class, method, data): (u16, u16, u32),
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        if method == inline::LOAD_INLINE_DATA {
            let refused = Refusal::Graphics { status: NV_PGRAPH_INTR::CLASS_ERROR.mask(), class };
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
            if method == LAUNCH_DMA {
                self.done = Some(0);
                if self.transfer().total() == 0 {
                    self.complete(run, effects)?;
                }
            }
        }
        Ok(())
    }

    fn complete(&self, run: &Run<'_>, effects: &mut Effects) -> Result<(), MmuFault> {
        let data = self.word(LAUNCH_DMA);
        if LAUNCH_DMA::COMPLETION_TYPE.get(data) == LAUNCH_DMA::COMPLETION_TYPE::RELEASE_SEMAPHORE {
            let va = self.address(inline::SET_I2M_SEMAPHORE_A);
            let payload = self.word(inline::SET_I2M_SEMAPHORE_C).into();
            let reduction = Reduction::of_graphics(LAUNCH_DMA::REDUCTION_OP.get(data));
            match reduction.filter(|_| LAUNCH_DMA::REDUCTION_ENABLE.is_set(data)) {
                Some(reduction) => {
                    let signed =
                        LAUNCH_DMA::REDUCTION_FORMAT.get(data) & LAUNCH_DMA::REDUCTION_FORMAT::SIGNED_32 != 0;
                    run.memory.reduce(va, reduction, Operand::Word, signed, payload)?;
                }
                None => {
                    let one_word = LAUNCH_DMA::SEMAPHORE_STRUCT_SIZE.is_set(data);
                    let report = if one_word { Report::Word } else { Report::FourWords };
                    run.memory.write_report(va, payload, report)?;
                }
            }
            effects.released = true;
        }
        effects.interrupt |= LAUNCH_DMA::INTERRUPT_TYPE.is_set(data);
        Ok(())
    }

    /// The state as words: progress in the first three, then the methods.
    pub(super) fn save(&self) -> impl Iterator<Item = u32> {
        let [low, high] = crate::words::halves(self.done.unwrap_or(0));
        [self.done.is_some().into(), low, high].into_iter().chain(self.words)
    }

    /// Restores the state from the words that [`InlineToMemory::save`] gave.
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
