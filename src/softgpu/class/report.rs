//! Report semaphores of Hopper's 3D and compute classes, in the old and the new form. No events are counted:
//! every counter reads 0.
//!
//! A trap stores nothing, and notifies the driver. (libcuda sends one behind a kernel that uses memory which
//! the driver moves about, and counts on no answer.) Acquires are refused.

use crate::engine::model::{Effects, Refusal, Run};
use crate::mmu::channel_memory::Report;
use gpuvmk_chip::gh100::methods::graphics::NV_PGRAPH_INTR;
use gpuvmk_chip::gh100::methods::report::ANY::OPERATION;
use gpuvmk_chip::gh100::methods::report::{self, Form, OLD};
use gpuvmk_chip::reduction::{Operand, Reduction};

/// Number of words of the saved state.
pub(super) const SAVED_WORDS: usize = 7;

/// State of one class: three words of the old form, four of the new one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reports {
    words: [u32; SAVED_WORDS],
}

/// The place where a method's word is kept.
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

impl Reports {
    /// Executes the method if it belongs to report semaphores. `form` describes the fields of the class's
    /// REPORT_SEMAPHORE_EXECUTE.
    pub(super) fn method(
        &mut self,
        run: &Run<'_>,
        (class, method, data): (u16, u16, u32),
        form: &Form,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let address = |upper: u32, low: u32| wide(report::ADDRESS_UPPER::ADDRESS.get(upper), low);
        let [a, b, c, low, high, address_low, address_high] = self.words;
        let place = index(method).and_then(|index| self.words.get_mut(index));
        if let Some(word) = place {
            *word = data;
            return Ok(());
        }
        let (form, va, payload) = match method {
            report::SET_REPORT_SEMAPHORE_D => (&OLD, address(a, b), u64::from(c)),
            report::REPORT_SEMAPHORE_EXECUTE => (form, address(address_high, address_low), wide(high, low)),
            _ => return Ok(()),
        };
        let refused = Refusal::Graphics { status: NV_PGRAPH_INTR::CLASS_ERROR.mask(), class };
        let value = match OPERATION.get(data) {
            OPERATION::RELEASE => payload,
            OPERATION::REPORT_ONLY => 0,
            OPERATION::TRAP => {
                effects.interrupt = true;
                return Ok(());
            }
            _ => return Err(refused),
        };
        write(run, data, form, va, value).ok_or(refused)??;
        effects.released = true;
        effects.interrupt |= form.awaken.is_set(data);
        Ok(())
    }

    /// The state as words.
    pub(super) fn save(&self) -> [u32; SAVED_WORDS] {
        self.words
    }

    /// Restores the state from the words that [`Reports::save`] gave.
    pub(super) fn load(&mut self, words: &mut impl Iterator<Item = u32>) {
        for word in &mut self.words {
            *word = words.next().unwrap_or(0);
        }
    }
}

/// Writes a report or carries out a reduction. `None` if the fields contradict each other.
fn write(
    run: &Run<'_>,
    data: u32,
    form: &Form,
    va: u64,
    value: u64,
) -> Option<Result<(), gpuvmk_chip::channel_event::MmuFault>> {
    let report_only = OPERATION.get(data) == OPERATION::REPORT_ONLY;
    let double = form.payload_64bit.is_some_and(|field| field.is_set(data)) || report_only;
    let operand = Operand::of(double);
    let report = match form.structure_size.get(data) {
        0 => Report::FourWords,
        1 => Report::Word,
        2 => Report::DoubleWord,
        _ => return None,
    };
    let value = value & operand.mask();
    if !form.reduction.is_set(data) {
        return Some(run.memory.write_report(va, value, report));
    }
    let reduction = Reduction::of_graphics(form.reduction_op.get(data))?;
    let signed = form.reduction_format.get(data) & 1 != 0;
    let operand = if report == Report::DoubleWord { Operand::DoubleWord } else { operand };
    let timed = || if report == Report::FourWords { run.memory.write_time(va) } else { Ok(()) };
    Some(timed().and_then(|()| run.memory.reduce(va, reduction, operand, signed, value)))
}
