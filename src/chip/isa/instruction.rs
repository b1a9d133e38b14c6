//! A decoded instruction.

use crate::arch::Arch;
use crate::modifier::{Kind, Modifier, Rounding};
use crate::opcode::Opcode;
use crate::operand::{Operand, Pred, Role};
use crate::row::{Form, Number, Row};
use crate::word::Control;

/// Operands that an instruction has at most.
pub const MAX_OPERANDS: usize = 10;

/// The predicate that an instruction is executed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Predicate of each lane; a uniform operation (bit 91 of its own) takes the uniform predicate of that
    /// number.
    pub pred: Pred,
    /// Lanes run where it is false.
    pub not: bool,
}

/// A decoded instruction.
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    pub(crate) row: &'static Row,
    pub(crate) form: &'static Form,
    pub(crate) arch: Arch,
    pub(crate) operands: [Option<Operand>; MAX_OPERANDS],
    pub(crate) modifiers: [u8; Kind::COUNT],
    /// Which lanes run.
    pub guard: Guard,
    /// Scheduling, without architectural meaning.
    pub control: Control,
}

impl Instruction {
    /// The operation.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        self.row.op
    }

    /// The version that it was decoded for.
    #[must_use]
    pub const fn arch(&self) -> Arch {
        self.arch
    }

    /// The operand of a role, `None` when this form has none.
    #[must_use]
    pub fn operand(&self, role: Role) -> Option<Operand> {
        let at = self.row.slots.iter().position(|slot| slot.role == role)?;
        self.operands.get(at).copied().flatten()
    }

    /// Every operand with its role, in the order in which they are printed.
    pub fn operands(&self) -> impl Iterator<Item = (Role, Operand)> + '_ {
        self.row.slots.iter().zip(self.operands).filter_map(|(slot, operand)| Some((slot.role, operand?)))
    }

    /// Whether a flag is set; false where the operation has none of that kind.
    #[must_use]
    pub const fn flag(&self, kind: Kind) -> bool {
        self.modifiers[kind as usize] != 0
    }

    /// The value of a modifier; its first value where the operation has none of that kind.
    #[must_use]
    pub fn get<M: Modifier>(&self) -> M {
        M::from_number(self.modifiers[M::KIND as usize])
    }

    /// Whether the operation has a modifier of that kind.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.row.fields.iter().any(|field| field.kind == kind)
    }

    /// Rounding of a float result.
    #[must_use]
    pub fn rounding(&self) -> Rounding {
        self.get()
    }

    /// What immediates of sources are.
    #[must_use]
    pub const fn number(&self) -> Number {
        self.row.number
    }
}
