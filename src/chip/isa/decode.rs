//! Words to instructions.

use crate::arch::Arch;
use crate::codec::Codec;
use crate::index::{Entry, entries};
use crate::instruction::{Guard, Instruction, MAX_OPERANDS};
use crate::modifier::Kind;
use crate::operand::Pred;
use crate::row::Field;
use crate::word::{Bits, Code, Word};

/// Why a word is no instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// No operation of that version has the code.
    #[error("{arch} has no operation {:#05x}", code.0)]
    Operation {
        /// The version of the instruction set.
        arch: Arch,
        /// Bits 11:0, bit 91 above them.
        code: Code,
    },
    /// A bit is set that the operation does not have, or one is not that must be.
    #[error("bit {bit} has no meaning in operation {:#05x} of {arch}", code.0)]
    Bit {
        /// The version of the instruction set.
        arch: Arch,
        /// Bits 11:0, bit 91 above them.
        code: Code,
        /// Lowest such bit.
        bit: u8,
    },
    /// A modifier's field holds a code without a meaning.
    #[error("{kind:?} has no value {value} in operation {:#05x} of {arch}", code.0)]
    Value {
        /// The version of the instruction set.
        arch: Arch,
        /// Bits 11:0, bit 91 above them.
        code: Code,
        /// The modifier.
        kind: Kind,
        /// What stands in the field.
        value: u64,
    },
}

/// The code in a modifier's field.
pub(crate) fn field_code(word: Word, field: &Field) -> u64 {
    let [low, high] = field.bits;
    word.get(low) | (word.get(high) << low.len)
}

/// The word with a modifier's code.
pub(crate) fn put_field(word: Word, field: &Field, code: u64) -> Word {
    let [low, high] = field.bits;
    word.with(low, code).with(high, code >> low.len)
}

/// Decodes a word. A set bit without a meaning makes it illegal.
///
/// # Errors
/// [`Illegal`] when no row of the table accounts for every bit; of several rows the last one's reason.
pub fn decode(arch: Arch, word: Word) -> Result<Instruction, Illegal> {
    let mut why = Illegal::Operation { arch, code: word.code() };
    for entry in entries(arch, word.code()) {
        match decode_as(arch, word, entry) {
            Ok(instruction) => return Ok(instruction),
            Err(illegal) => why = illegal,
        }
    }
    Err(why)
}

fn decode_as(arch: Arch, word: Word, entry: &Entry) -> Result<Instruction, Illegal> {
    let code = word.code();
    let wrong = (word.0 & !entry.mask) | ((word.0 ^ entry.fixed) & entry.fixed_mask);
    if wrong != 0 {
        let bit = u8::try_from(wrong.trailing_zeros()).unwrap_or_default();
        return Err(Illegal::Bit { arch, code, bit });
    }
    let mut modifiers = [0; Kind::COUNT];
    for field in entry.row.fields {
        let value = field_code(word, field);
        modifiers[field.kind as usize] =
            field.value(value).ok_or(Illegal::Value { arch, code, kind: field.kind, value })?;
    }
    let codec = Codec { arch, form: entry.form };
    let mut operands = [None; MAX_OPERANDS];
    for (slot, operand) in entry.row.slots.iter().zip(&mut operands) {
        *operand = codec.read(word, slot);
    }
    Ok(Instruction {
        row: entry.row,
        form: entry.form,
        arch,
        operands,
        modifiers,
        guard: Guard { pred: Pred(word.small(Word::GUARD)), not: word.get(Word::GUARD_NOT) == 1 },
        control: word.control(),
    })
}

/// Bits of a modifier.
pub(crate) fn field_mask(field: &Field) -> u128 {
    field.bits.iter().copied().map(Bits::mask).fold(0, |all, mask| all | mask)
}
