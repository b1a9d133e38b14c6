//! Report semaphores of Hopper's 3D and compute classes, in both forms. Nothing is counted: counters read 0.
//!
//! Waiting (acquire) and trapping (software methods) are refused.

use crate::engine::model::{Effects, Refusal, Run};
use crate::mmu::channel_memory::Report;
use crate::mmu::reduction::{Operand, Reduction};
use gpuvmk_chip::gh100::methods::graphics::intr;
use gpuvmk_chip::gh100::methods::report::{self, Form, OLD};

/// Words of the saved state.
pub(super) const SAVED_WORDS: usize = 7;

/// The state of one class: three words of the old form, four of the new one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    words: [u32; SAVED_WORDS],
}

/// The place of a method's word.
fn index(method: u16) -> Option<usize> {
    match method {
        report::SET_REPORT_SEMAPHORE_A => Some(0),
        report::SET_REPORT_SEMAPHORE_B => Some(1),
        report::SET_REPORT_SEMAPHORE_C => Some(2),
        report::SET_REPORT_SEMAPHORE_PAYLOAD_LOWER => Some(3),
        report::SET_REPORT_SEMAPHORE_PAYLOAD_UPPER => Some(4),
        report::SET_REPORT_SEMAPHORE_ADDRESS_LOWER => Some(5),
        report::SET_REPORT_SEMAPHORE_ADDRESS_UPPER => Some(6),
        _ => None,
    }
}

/// Address bits 56:32 in a high word.
const ADDRESS_HIGH: u32 = 0x01ff_ffff;

impl Reports {
    /// Executes a method if it is one of these. `form` is that of the class's REPORT_SEMAPHORE_EXECUTE.
    pub(super) fn method(
        &mut self,
        run: &Run<'_>,
        (class, method, data): (u16, u16, u32),
        form: &Form,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let [a, b, c, low, high, address_low, address_high] = self.words;
        let place = index(method).and_then(|index| self.words.get_mut(index));
        if let Some(word) = place {
            *word = data;
            return Ok(());
        }
        let (form, va, payload) = match method {
            report::SET_REPORT_SEMAPHORE_D => (&OLD, wide(a & ADDRESS_HIGH, b), u64::from(c)),
            report::REPORT_SEMAPHORE_EXECUTE => {
                (form, wide(address_high & ADDRESS_HIGH, address_low), wide(high, low))
            }
            _ => return Ok(()),
        };
        let refused = Refusal::Graphics { status: intr::DATA_ERROR, class };
        let value = match data & report::OPERATION {
            report::RELEASE => payload,
            report::REPORT_ONLY => 0,
            _ => return Err(refused),
        };
        write(run, data, form, va, value).ok_or(refused)??;
        effects.released = true;
        effects.interrupt |= data & form.awaken != 0;
        Ok(())
    }

    /// The state as words.
    pub(super) fn save(&self) -> [u32; SAVED_WORDS] {
        self.words
    }

    /// Takes over what [`Reports::save`] gave.
    pub(super) fn load(&mut self, words: &mut impl Iterator<Item = u32>) {
        for word in &mut self.words {
            *word = words.next().unwrap_or(0);
        }
    }
}

/// Writes a report, or reduces. `None`: fields that contradict each other.
fn write(
    run: &Run<'_>,
    data: u32,
    form: &Form,
    va: u64,
    value: u64,
) -> Option<Result<(), gpuvmk_chip::channel_event::MmuFault>> {
    let report_only = data & report::OPERATION == report::REPORT_ONLY;
    let operand =
        if data & form.payload_64bit != 0 || report_only { Operand::DoubleWord } else { Operand::Word };
    let report = match data >> form.size_shift & form.size_mask {
        0 => Report::FourWords,
        1 => Report::Word,
        2 => Report::DoubleWord,
        _ => return None,
    };
    let value = value & operand.mask();
    if data & form.reduction == 0 {
        return Some(run.memory.write_report(va, value, report));
    }
    let reduction = Reduction::of_graphics(data >> form.reduction_shift & 7)?;
    let signed = data & form.reduction_signed != 0;
    let operand = if report == Report::DoubleWord { Operand::DoubleWord } else { operand };
    let timed = || if report == Report::FourWords { run.memory.write_time(va) } else { Ok(()) };
    Some(timed().and_then(|()| run.memory.reduce(va, reduction, operand, signed, value)))
}
