//! The form of saved state.
//!
//! A unit that has state has a plain struct beside it, named after it: `Pfifo` and `PfifoState`. The struct
//! holds numbers and lists, no references, no locks and no connections. `state()` makes one, and
//! `from_state()` makes a unit of one. The states of units are the fields of a state of the whole, a tree
//! whose root is a register face's state.
//!
//! # Rules
//!
//! * A state is untrusted. `from_state` refuses what its unit could not have reached with a [`StateError`]
//!   that says where and what. It never panics, and nothing grows beyond what the unit itself may hold.
//! * A state that was saved is accepted, and a state that was accepted is saved again without change: each
//!   state has one form ([`Words`] without zeros at the end, lists in order).
//! * `state()` takes its unit apart field by field (`let Self { a, b } = self`), so that a new field does not
//!   compile until its saving was decided.
//! * Fields are named after the registers that show them, where there are such registers.
//! * A part that is plain data already, such as a fault record, is its own state. Its fields are a format.
//! * What can be had from elsewhere is not in a state: caches (a window's translations), connections
//!   (interrupt sinks, watchers), threads, and what a back has.
//! * Time in a state is the unit's own, not the host's: a timer stands still while it is a state.
//!
//! # Compatibility
//!
//! The root of a tree has a [`Version`], which counts for the whole tree. It is the first field, so that a
//! reader sees it before a field that it does not know. States deny unknown fields and lack no field.
//!
//! * A new field raises the version, has `#[serde(default)]`, and a comment with the version that added it.
//!   Its default must mean the behaviour of earlier versions.
//! * Removing or renaming a field, or changing its meaning, raises the version and the oldest readable
//!   version to the same number.
//! * A newer state is not read by an older program.
//!
//! A state of each face, as text, lies in the tests of its room. A change that forgets the version makes that
//! test fail.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod hex;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod version;

pub use hex::{Bytes, Words};
pub use version::Version;

/// Why a state is refused: its unit could not have reached it, or has another shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The saved state of {place} is not one that it can be in: {problem}")]
pub struct StateError {
    /// Where, from the root of the tree: units, with dots between them.
    place: String,
    /// What is wrong there.
    problem: String,
}

impl StateError {
    /// A refusal by the unit named `unit`.
    pub fn new(unit: &str, problem: impl Into<String>) -> Self {
        Self { place: unit.to_owned(), problem: problem.into() }
    }

    /// The same, as it is for what holds the unit.
    #[must_use]
    pub fn within(mut self, holder: &str) -> Self {
        self.place = format!("{holder}.{}", self.place);
        self
    }
}

/// Checks that a unit makes of its state, with its name.
#[derive(Clone, Copy, Debug)]
pub struct Check(pub &'static str);

impl Check {
    /// Refuses with `problem` unless `holds`.
    ///
    /// # Errors
    /// It does not hold.
    pub fn that(self, holds: bool, problem: impl FnOnce() -> String) -> Result<(), StateError> {
        if holds { Ok(()) } else { Err(StateError::new(self.0, problem())) }
    }

    /// Refuses a register with other bits than `allowed`.
    ///
    /// # Errors
    /// It has such bits.
    pub fn bits(self, register: &str, value: u32, allowed: u32) -> Result<(), StateError> {
        self.that(value & !allowed == 0, || format!("{register} is {value:#x}, of {allowed:#x}"))
    }

    /// Refuses a list of more than `most` entries.
    ///
    /// # Errors
    /// It is longer.
    pub fn at_most(self, list: &str, length: usize, most: usize) -> Result<(), StateError> {
        self.that(length <= most, || format!("{list} has {length} entries, of at most {most}"))
    }

    /// Refuses a list that has not `length` entries.
    ///
    /// # Errors
    /// It is longer or shorter.
    pub fn exactly(self, list: &str, length: usize, wanted: usize) -> Result<(), StateError> {
        self.that(length == wanted, || format!("{list} has {length} entries, not {wanted}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_the_place_from_the_root() {
        let error = Check("PBUS").bits("NV_PBUS_INTR_EN_0", 5, 1).unwrap_err().within("registers");
        assert_eq!(
            error.within("GF100").to_string(),
            "The saved state of GF100.registers.PBUS is not one that it can be in: NV_PBUS_INTR_EN_0 is 0x5, of 0x1"
        );
    }

    #[test]
    fn lists_have_bounds() {
        let check = Check("LIST");
        assert!(check.at_most("it", 4, 4).is_ok() && check.exactly("it", 4, 4).is_ok());
        for error in [check.at_most("it", 5, 4), check.exactly("it", 3, 4), check.exactly("it", 5, 4)] {
            assert!(error.unwrap_err().to_string().contains("it has"));
        }
    }
}
