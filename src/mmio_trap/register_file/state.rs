//! A register file's saved state.

use gpuvmk_chip::register_index::{BAR0_SIZE, RegisterIndex};
use gpuvmk_chip::registers::{Policy, Reg};
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::{Counters, Notice, PER_PAGE, RegisterFile};

/// Bytes of a page of storage.
const PAGE_BYTES: usize = PER_PAGE * 4;

/// State of a [`RegisterFile`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterFileState {
    /// Offset and value of every register that has not its reset value, in ascending order.
    pub registers: Vec<(u32, u32)>,
    /// Accesses of note.
    pub counters: Counters,
    /// The first register that was accessed and that no table lists, until it was reported to the owner.
    pub unlisted: Option<u32>,
    /// True when one was reported to the owner.
    pub unlisted_told: bool,
}

/// Value of a register after a reset.
fn reset_value(index: &RegisterIndex, reg: Reg) -> u32 {
    index.definition(reg).map_or(0, |definition| definition.reset)
}

impl RegisterFile {
    /// The state to save.
    pub fn state(&self) -> RegisterFileState {
        // Who asks for counters is told of all of them at first.
        let Self { index, pages, counters, changed: _, notice } = self;
        let pages = pages.iter().zip((0..).step_by(PAGE_BYTES));
        let pages = pages.filter_map(|(page, start)| Some((page.as_ref()?, start)));
        let registers = pages.flat_map(|(page, start)| page.iter().copied().zip((start..).step_by(4)));
        let registers = registers
            .filter(|(value, offset)| *value != reset_value(index, Reg(*offset)))
            .map(|(value, offset)| (offset, value));
        RegisterFileState {
            registers: registers.collect(),
            counters: *counters,
            unlisted: match notice {
                Notice::Due(Reg(offset)) => Some(*offset),
                Notice::None | Notice::Told => None,
            },
            unlisted_told: *notice == Notice::Told,
        }
    }

    /// The registers of a function with these tables, in a saved state.
    ///
    /// # Errors
    /// A register has a value that it cannot have: one that is not stored here, one behind the last, or the
    /// reset value.
    pub fn from_state(state: &RegisterFileState, index: &'static RegisterIndex) -> Result<Self, StateError> {
        let check = Check("register file");
        let mut file = Self::new(index);
        let mut least = 0;
        for &(offset, value) in &state.registers {
            let reg = Reg(offset);
            check.that(offset >= least && offset < BAR0_SIZE && offset % 4 == 0, || {
                format!("{offset:#x} is no register, or not in its place")
            })?;
            least = offset.saturating_add(4);
            let definition = index.definition(reg);
            let policy = definition.map_or(Policy::Scratch, |definition| definition.policy);
            let is_stored = match policy {
                Policy::Scratch | Policy::WriteOneToClear => true,
                Policy::Fields => definition.is_some_and(|definition| value & !definition.fields_mask() == 0),
                Policy::Constant | Policy::Handler | Policy::Denied => false,
            };
            check.that(is_stored && value != reset_value(index, reg), || {
                format!("register {offset:#08x}, with policy {policy:?}, has {value:#x}")
            })?;
            file.store(reg, value);
        }
        file.counters = state.counters;
        file.notice = match (state.unlisted, state.unlisted_told) {
            (None, false) => Notice::None,
            (None, true) => Notice::Told,
            (Some(offset), told) => {
                check.that(!told && index.definition(Reg(offset)).is_none(), || {
                    format!("{offset:#x} is the first register that no table lists, and that is not so")
                })?;
                Notice::Due(Reg(offset))
            }
        };
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use gpuvmk_saved_state::testing::{corrupted_states_are_refused_or_taken_as_they_are, through_text};

    use super::super::Outcome;
    use super::*;
    use crate::access::Word;

    gpuvmk_chip::registers! {
        unit "TEST", source "test";
        /// Plain.
        PLAIN @ 0x001000, reset 7, Scratch, {};
        /// Fixed.
        FIXED @ 0x001004, reset 9, Constant, {};
        /// Cleared by ones.
        STATUS @ 0x001008, reset 0xff, WriteOneToClear, {};
        /// A register with a handler.
        ACTIVE @ 0x00100c, reset 0, Handler, {};
    }

    static INDEX: LazyLock<RegisterIndex> = LazyLock::new(|| RegisterIndex::new(&[TABLE]));

    fn used() -> RegisterFile {
        let mut file = RegisterFile::new(&INDEX);
        file.write(PLAIN, Word::full(1));
        file.write(STATUS, Word::full(0xf));
        file.write(FIXED, Word::full(1));
        file.write(Reg(0xff_fffc), Word::full(5));
        file
    }

    #[test]
    fn state_is_what_differs_from_the_reset_values() {
        let mut file = used();
        let state = through_text(&file.state());
        assert_eq!(state.registers, [(0x1000, 1), (0x1008, 0xf0), (0xff_fffc, 5)]);
        assert_eq!(state.unlisted, Some(0xff_fffc));
        let mut again = RegisterFile::from_state(&state, &INDEX).unwrap();
        for reg in [PLAIN, FIXED, STATUS, ACTIVE, Reg(0xff_fffc), Reg(0x1010)] {
            assert_eq!(again.read(reg), file.read(reg));
        }
        assert_eq!((again.take_notice(), again.counters()), (file.take_notice(), file.counters()));
        assert!(again.state().unlisted_told);
        assert_eq!(again.state(), file.state());
        again.reset_all();
        assert_eq!(again.read(PLAIN), Outcome::Done(7));
    }

    #[test]
    fn values_that_registers_cannot_have_are_refused() {
        let refused = |registers: &[(u32, u32)]| {
            let state = RegisterFileState { registers: registers.to_vec(), ..used().state() };
            RegisterFile::from_state(&state, &INDEX).unwrap_err().to_string()
        };
        assert!(refused(&[(0x1004, 1)]).contains("policy Constant"));
        assert!(refused(&[(0x100c, 1)]).contains("policy Handler"));
        assert!(refused(&[(0x1000, 7)]).contains("has 0x7"), "the reset value is not a value of note");
        for registers in
            [&[(0x1001, 1)][..], &[(0x100_0000, 1)], &[(0x2000, 1), (0x1000, 1)], &[(0x2000, 1); 2]]
        {
            assert!(refused(registers).contains("is no register, or not in its place"));
        }
        let state = RegisterFileState { unlisted: Some(0x1000), ..used().state() };
        assert!(RegisterFile::from_state(&state, &INDEX).is_err());
    }

    #[test]
    fn corrupted_states_are_refused() {
        corrupted_states_are_refused_or_taken_as_they_are(
            &used().state(),
            500,
            |state| RegisterFile::from_state(state, &INDEX),
            RegisterFile::state,
        );
    }
}
