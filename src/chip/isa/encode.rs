//! Instructions to words.

use crate::codec::Codec;
use crate::decode::put_field;
use crate::instruction::Instruction;
use crate::modifier::Kind;
use crate::operand::{Operand, Role};
use crate::word::{Code, Word};

impl Instruction {
    /// The word that decodes to this instruction; `None` when a value was set that its form cannot hold.
    #[must_use]
    pub fn encode(&self) -> Option<Word> {
        let mut word = Word(0)
            .with_code(Code(self.row.code | self.form.code))
            .with_control(self.control)
            .with(Word::GUARD, self.guard.pred.0.into())
            .with(Word::GUARD_NOT, self.guard.not.into());
        for (bits, value) in self.row.fixed {
            word = word.with(*bits, *value);
        }
        for field in self.row.fields {
            word = put_field(word, field, field.code(self.modifiers[field.kind as usize])?);
        }
        let codec = Codec { arch: self.arch, form: self.form };
        for (slot, operand) in self.row.slots.iter().zip(self.operands) {
            if let Some(operand) = operand {
                word = codec.write(word, slot, operand)?;
            }
        }
        Some(word)
    }

    /// The same with another operand in a role that it has; what does not fit is told by
    /// [`Instruction::encode`].
    #[must_use]
    pub fn with_operand(mut self, role: Role, operand: Operand) -> Self {
        let at = self.row.slots.iter().position(|slot| slot.role == role);
        if let Some(held) = at.and_then(|at| self.operands.get_mut(at)) {
            *held = Some(operand);
        }
        self
    }

    /// The same with another value of a modifier, by number.
    #[must_use]
    pub fn with_modifier(mut self, kind: Kind, value: u8) -> Self {
        self.modifiers[kind as usize] = value;
        self
    }
}
