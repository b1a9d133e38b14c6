//! Storage for the registers of BAR0 that have no behaviour, by the policy of their table.
//!
//! Registers that no table lists are scratch: they read back what was written and touch nothing. Pages of 4
//! KiB come into being on the first write; the whole file never exceeds the 16 MiB of BAR0. Registers with
//! policy *handler* are left to the unit models.

mod state;

use std::ops::Range;

use super::access::Word;
use gpuvmk_chip::register_index::{BAR0_SIZE, RegisterIndex};
use gpuvmk_chip::registers::{Policy, Reg};
pub use state::RegisterFileState;

/// Registers on a page of storage.
const PER_PAGE: usize = 1024;

/// log2 of a page's bytes.
const PAGE_SHIFT: u32 = 12;

/// The table's answer to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The access is done; for a read, with this value.
    Done(u32),
    /// A unit model has to answer.
    Handler,
}

/// Accesses of note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Reads of registers that no table lists.
    pub unlisted_reads: u64,
    /// Writes to registers that no table lists.
    pub unlisted_writes: u64,
    /// Writes to registers that drivers may not write.
    pub refused: u64,
}

/// The registers of one function.
#[derive(Debug)]
pub struct RegisterFile {
    index: &'static RegisterIndex,
    pages: Vec<Option<Box<[u32; PER_PAGE]>>>,
    counters: Counters,
    /// A counter has changed since somebody asked.
    changed: bool,
    notice: Notice,
}

/// Whether the first access to a register that no table lists was reported to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notice {
    None,
    Due(Reg),
    Told,
}

impl RegisterFile {
    /// All registers at their reset values.
    pub fn new(index: &'static RegisterIndex) -> Self {
        let pages = (0..BAR0_SIZE >> PAGE_SHIFT).map(|_| None).collect();
        Self { index, pages, counters: Counters::default(), changed: false, notice: Notice::None }
    }

    /// Serves a read.
    pub fn read(&mut self, reg: Reg) -> Outcome {
        match self.index.definition(reg) {
            None => {
                self.changed = true;
                self.counters.unlisted_reads = self.counters.unlisted_reads.saturating_add(1);
                self.note_unlisted(reg);
                Outcome::Done(self.stored(reg).unwrap_or(0))
            }
            Some(definition) => match definition.policy {
                Policy::Scratch | Policy::Fields | Policy::WriteOneToClear => {
                    Outcome::Done(self.stored(reg).unwrap_or(definition.reset))
                }
                Policy::Constant | Policy::Denied => Outcome::Done(definition.reset),
                Policy::Handler => Outcome::Handler,
            },
        }
    }

    /// Serves a write.
    pub fn write(&mut self, reg: Reg, word: Word) -> Outcome {
        let Some(definition) = self.index.definition(reg) else {
            self.changed = true;
            self.counters.unlisted_writes = self.counters.unlisted_writes.saturating_add(1);
            self.note_unlisted(reg);
            self.store(reg, word.merge(self.stored(reg).unwrap_or(0)));
            return Outcome::Done(0);
        };
        match definition.policy {
            Policy::Scratch => self.store(reg, word.merge(self.get(reg))),
            Policy::Fields => self.store(reg, word.merge(self.get(reg)) & definition.fields_mask()),
            Policy::WriteOneToClear => self.store(reg, self.get(reg) & !word.bits()),
            Policy::Constant => {}
            Policy::Denied => {
                self.changed = true;
                self.counters.refused = self.counters.refused.saturating_add(1);
            }
            Policy::Handler => return Outcome::Handler,
        }
        Outcome::Done(0)
    }

    /// The value of a register that the file stores, without counting.
    pub fn get(&self, reg: Reg) -> u32 {
        let reset = || self.index.definition(reg).map_or(0, |definition| definition.reset);
        self.stored(reg).unwrap_or_else(reset)
    }

    /// Sets a register as hardware does, whatever its policy.
    pub fn set(&mut self, reg: Reg, value: u32) {
        self.store(reg, value);
    }

    /// Brings the registers of whole pages back to their reset values: a unit was reset.
    pub fn reset(&mut self, range: Range<u32>) {
        let first = (range.start >> PAGE_SHIFT) as usize;
        let count = (range.end.saturating_sub(range.start) >> PAGE_SHIFT) as usize;
        for page in self.pages.iter_mut().skip(first).take(count) {
            *page = None;
        }
    }

    /// Resets every register to its reset value; the counters keep their values.
    pub fn reset_all(&mut self) {
        self.pages.fill(None);
    }

    /// Accesses of note since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// True if a counter has changed since the last call of this.
    pub const fn take_counters_changed(&mut self) -> bool {
        std::mem::replace(&mut self.changed, false)
    }

    /// The first register that was accessed and that no table lists; returned once.
    pub fn take_notice(&mut self) -> Option<Reg> {
        let Notice::Due(reg) = self.notice else { return None };
        self.notice = Notice::Told;
        Some(reg)
    }

    fn note_unlisted(&mut self, reg: Reg) {
        if self.notice == Notice::None {
            self.notice = Notice::Due(reg);
        }
    }

    fn stored(&self, reg: Reg) -> Option<u32> {
        let (page, entry) = place(reg);
        self.pages.get(page)?.as_ref()?.get(entry).copied()
    }

    fn store(&mut self, reg: Reg, value: u32) {
        let (page, entry) = place(reg);
        let Some(slot) = self.pages.get_mut(page) else { return };
        let index = self.index;
        let page = slot.get_or_insert_with(|| {
            let mut fresh = Box::new([0; PER_PAGE]);
            for (value, at) in fresh.iter_mut().zip((reg.0 >> PAGE_SHIFT << PAGE_SHIFT..).step_by(4)) {
                *value = index.definition(Reg(at)).map_or(0, |definition| definition.reset);
            }
            fresh
        });
        if let Some(register) = page.get_mut(entry) {
            *register = value;
        }
    }
}

const fn place(reg: Reg) -> (usize, usize) {
    ((reg.0 >> PAGE_SHIFT) as usize, (reg.0 as usize >> 2) % PER_PAGE)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::access::lanes;

    gpuvmk_chip::registers! {
        unit "TEST", source "test";
        /// Plain.
        PLAIN @ 0x001000, reset 7, Scratch, {};
        /// Some bits.
        SOME @ 0x001014, reset 0x10, Fields, { 31:31 ON, 7:4 NUMBER };
        /// Fixed.
        FIXED @ 0x001004, reset 9, Constant, {};
        /// Cleared by ones.
        STATUS @ 0x001008, reset 0, WriteOneToClear, {};
        /// Not for drivers.
        SECRET @ 0x00100c, reset 3, Denied, {};
        /// A register with a handler.
        ACTIVE @ 0x001010, reset 0, Handler, {};
    }

    static INDEX: LazyLock<RegisterIndex> = LazyLock::new(|| RegisterIndex::new(&[TABLE]));

    fn file() -> RegisterFile {
        RegisterFile::new(&INDEX)
    }

    #[test]
    fn plain_register_has_its_reset_value_and_then_what_was_written() {
        let mut file = file();
        assert_eq!(file.read(PLAIN), Outcome::Done(7));
        file.write(PLAIN, Word::full(0x1234_5678));
        assert_eq!(file.read(PLAIN), Outcome::Done(0x1234_5678));
        assert_eq!(file.read(FIXED), Outcome::Done(9));
    }

    #[test]
    fn constant_and_denied_registers_keep_their_value_and_refusals_count() {
        let mut file = file();
        file.write(FIXED, Word::full(1));
        file.write(SECRET, Word::full(1));
        assert_eq!((file.read(FIXED), file.read(SECRET)), (Outcome::Done(9), Outcome::Done(3)));
        assert_eq!(file.counters(), Counters { refused: 1, ..Counters::default() });
    }

    #[test]
    fn only_the_fields_of_a_register_of_fields_stick() {
        let mut file = file();
        assert_eq!(file.read(SOME), Outcome::Done(0x10));
        file.write(SOME, Word::full(u32::MAX));
        assert_eq!(file.read(SOME), Outcome::Done(0x8000_00f0));
        let lane = lanes(u64::from(SOME.0), 1).next().unwrap();
        file.write(SOME, lane.word(&[0x2f]));
        assert_eq!(file.read(SOME), Outcome::Done(0x8000_0020));
    }

    #[test]
    fn ones_clear_bits_in_the_driven_lanes_only() {
        let mut file = file();
        file.set(STATUS, 0xffff_ffff);
        let lane = lanes(u64::from(STATUS.0) + 1, 1).next().unwrap();
        file.write(STATUS, lane.word(&[0x0f]));
        assert_eq!(file.read(STATUS), Outcome::Done(0xffff_f0ff));
    }

    #[test]
    fn handler_registers_are_left_to_the_unit() {
        let mut file = file();
        assert_eq!(file.read(ACTIVE), Outcome::Handler);
        assert_eq!(file.write(ACTIVE, Word::full(1)), Outcome::Handler);
    }

    #[test]
    fn unlisted_register_is_scratch_and_counted() {
        let mut file = file();
        let unlisted = Reg(0x00ff_fffc);
        file.write(unlisted, Word::full(5));
        assert_eq!(file.read(unlisted), Outcome::Done(5));
        assert_eq!(file.counters(), Counters { unlisted_reads: 1, unlisted_writes: 1, refused: 0 });
        assert_eq!(file.read(Reg(0x0100_0000)), Outcome::Done(0));
        assert_eq!((file.take_notice(), file.take_notice()), (Some(unlisted), None));
    }

    #[test]
    fn reset_of_a_range_leaves_other_pages_alone() {
        let mut file = file();
        file.write(PLAIN, Word::full(1));
        file.write(Reg(0x2000), Word::full(2));
        file.reset(0x1000..0x2000);
        assert_eq!((file.get(PLAIN), file.get(Reg(0x2000))), (7, 2));
        file.reset_all();
        assert_eq!(file.get(Reg(0x2000)), 0);
    }
}
