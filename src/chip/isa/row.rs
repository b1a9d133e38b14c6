//! What a row of the table of operations says.

use crate::arch::Arch;
use crate::modifier::Kind;
use crate::opcode::Opcode;
use crate::operand::Role;
use crate::word::Bits;

/// One operation of a range of versions.
#[derive(Debug)]
pub struct Row {
    /// The operation.
    pub op: Opcode,
    /// What is printed before the modifiers.
    pub mnemonic: &'static str,
    /// First version.
    pub since: Arch,
    /// Last version.
    pub until: Arch,
    /// Bits 8:0, or all twelve where [`Row::forms`] says so.
    pub code: u16,
    /// The forms that it has.
    pub forms: &'static [Form],
    /// Operands, in the order in which they are printed.
    pub slots: &'static [Slot],
    /// Modifiers, in the order in which they are printed.
    pub fields: &'static [Field],
    /// Fields with one legal value.
    pub fixed: &'static [(Bits, u64)],
    /// How immediates of sources print.
    pub number: Number,
}

/// A form: where the second and third sources are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Added to the row's code: bits 11:9, and bit 12 for bit 91 of the word.
    pub code: u16,
    /// Second source.
    pub b: Place,
    /// Third source.
    pub c: Place,
    /// First and last version that have it.
    pub arch: (Arch, Arch),
}

/// Where a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The form has no such source.
    None,
    /// Register in bits 39:32.
    Low,
    /// Register in bits 71:64.
    High,
    /// Immediate in bits 63:32.
    Imm,
    /// Constant bank, bits 58:38.
    Const,
    /// Uniform register in bits 39:32.
    Uniform,
    /// Constant buffer with its handle in a uniform register pair.
    Bindless,
    /// Uniform register in bits 71:64.
    UniformHigh,
}

/// How an immediate source prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// Signed integer, in hexadecimal.
    Signed,
    /// Bits, in hexadecimal.
    Bits,
    /// Float.
    Single,
    /// High half of a double.
    Double,
    /// Two half floats, low first.
    Halves,
}

/// Which modifiers a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mods {
    /// None.
    None,
    /// Negation.
    Neg,
    /// Negation and absolute value.
    NegAbs,
    /// Negation, absolute value and halves of packed operands.
    Half,
    /// Complement.
    Not,
}

/// When an operand prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Always.
    Always,
    /// When a predicate is not PT.
    Used,
    /// When a predicate is not PT, and always from SM100 on.
    UsedOrNew,
    /// With that flag.
    With(Kind),
    /// Never; the field must hold its neutral value.
    Never,
}

/// One operand of a row.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// What it is for.
    pub role: Role,
    /// Where and what it is.
    pub kind: SlotKind,
    /// When it prints.
    pub show: Show,
}

/// What an operand's fields are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// Register at a bit, with modifiers at the places of bits 31:24, 39:32 or 71:64.
    Reg(u8, Mods),
    /// Uniform register at a bit.
    UReg(u8, Mods),
    /// The form's second source.
    FormB(Mods),
    /// The form's third source.
    FormC(Mods),
    /// Predicate at a bit, with the bit that negates it.
    Pred(u8, Option<u8>),
    /// Uniform predicate at a bit, with the bit that negates it.
    UPred(u8, Option<u8>),
    /// Unsigned number.
    Unsigned(Bits),
    /// PLOP3's table: bits 76:72 above 66:64.
    SplitTable,
    /// Convergence barrier at a bit.
    Barrier(u8),
    /// Convergence barrier, or another word of a warp's state, at a bit.
    WarpState(u8),
    /// Special register at a bit.
    Special(u8),
    /// Distance in words of four bytes, bits 81:34.
    Target48,
    /// The same with eight low bits in 23:16.
    Target56,
    /// Address of an instruction, in words of four bytes, in the bits of `Target56`.
    Absolute56,
    /// Distance in bytes, bits 81:24.
    Target58,
    /// Distance in bits 63:34.
    Target30,
    /// Memory.
    Memory(Memory),
    /// Constant memory: bank 58:54, signed offset 53:38, register 31:24.
    ConstMemory,
    /// The same with a uniform register, and its offset somewhere.
    ConstMemoryUniform(Bits),
    /// Constant bank and offset without a register (ULDC).
    ConstPlain,
    /// Constant memory of a handle in 31:24: signed offset 53:38, register 71:64.
    BindlessMemory,
    /// The same without a register.
    BindlessPlain,
}

/// Fields of a memory operand. The base is in bits 31:24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bit that makes the base a pair, where there is one.
    pub wide: Option<u8>,
    /// Uniform register that is added.
    pub uniform: Option<u8>,
    /// Uniform register pair with a descriptor.
    pub descriptor: Option<u8>,
    /// Offset; no bits for none.
    pub offset: Bits,
    /// Stride field.
    pub stride: Option<Bits>,
    /// Lowest bit of the base; `None` for an address without one.
    pub base: Option<u8>,
}

/// One modifier of a row.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// What the modifier says.
    pub kind: Kind,
    /// Its bits; a second run holds the higher bits.
    pub bits: [Bits; 2],
    /// Value of each code, 255 for none; empty when they are the same.
    pub codes: &'static [u8],
    /// The value that is not printed.
    pub hidden: Option<u8>,
}

impl Field {
    /// The value of a code.
    #[must_use]
    pub fn value(&self, code: u64) -> Option<u8> {
        let code = u8::try_from(code).ok()?;
        if self.codes.is_empty() {
            return (usize::from(code) < self.kind.names().len()).then_some(code);
        }
        self.codes.get(usize::from(code)).copied().filter(|value| *value != 255)
    }

    /// The code of a value.
    #[must_use]
    pub fn code(&self, value: u8) -> Option<u64> {
        if self.codes.is_empty() {
            return Some(value.into());
        }
        self.codes.iter().position(|held| *held == value).map(|at| at as u64)
    }
}
