//! One entry of a filter: a system call, conditions of its arguments, and why a thread makes it.
//!
//! Arguments are compared by their lower 32 bits: all that are compared here are `int`s and flags, whose
//! upper half the kernel ignores. Memory that an argument points to cannot be looked at.

use std::fmt;

/// Condition of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is this value.
    Is(u32),
    /// All of these bits are set.
    Has(u32),
    /// None of these bits is set.
    Lacks(u32),
    /// These bits have this value.
    Field {
        /// The bits that are compared.
        mask: u32,
        /// The value of these bits.
        value: u32,
    },
    /// This process's own number.
    OwnPid,
}

impl Test {
    /// This value of an `int`, as the C library's constants are.
    pub const fn int(value: libc::c_int) -> Self {
        Self::Is(value.cast_unsigned())
    }

    /// The bits that are looked at, and what they must be.
    pub fn mask_and_value(self) -> (u32, u32) {
        match self {
            Self::Is(value) => (u32::MAX, value),
            Self::Has(bits) => (bits, bits),
            Self::Lacks(bits) => (bits, 0),
            Self::Field { mask, value } => (mask, value),
            Self::OwnPid => (u32::MAX, std::process::id()),
        }
    }
}

/// A condition on an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which argument, from 0.
    pub argument: u8,
    /// The condition of its value.
    pub test: Test,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let argument = self.argument;
        match self.test {
            Test::Is(value) => write!(f, "arg{argument} = {value:#x}"),
            Test::Has(bits) => write!(f, "arg{argument} has {bits:#x}"),
            Test::Lacks(bits) => write!(f, "arg{argument} lacks {bits:#x}"),
            Test::Field { mask, value } => write!(f, "arg{argument} & {mask:#x} = {value:#x}"),
            Test::OwnPid => write!(f, "arg{argument} = own process"),
        }
    }
}

/// One entry: a call with such arguments is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// `SYS_` and the call's name.
    pub(super) symbol: &'static str,
    /// Number of the system call.
    pub number: i64,
    /// All of these must hold.
    pub when: &'static [Condition],
    /// Why a thread needs it.
    pub why: &'static str,
    /// Why ordinary work does not show it; `None`: it does, in every run.
    pub rare: Option<&'static str>,
}

impl Rule {
    /// The call's name.
    pub fn name(&self) -> &'static str {
        self.symbol.strip_prefix("SYS_").unwrap_or(self.symbol)
    }
}

/// Writes a list of [`Rule`]s: `SYS_name(argument test, ...) rare "reason": "why";`, conditions and `rare`
/// being optional.
macro_rules! rules {
    ($($call:ident $(($($argument:literal $test:expr),+))? $(rare $rare:literal)? : $why:literal;)*) => {
        &[$($crate::rule::Rule {
            symbol: stringify!($call),
            number: libc::$call,
            when: &[$($($crate::rule::Condition { argument: $argument, test: $test }),+)?],
            why: $why,
            rare: rules!(@rare $($rare)?),
        }),*]
    };
    (@rare) => { None };
    (@rare $rare:literal) => { Some($rare) };
}

pub(super) use rules;
