//! Where the dialect departs from what the table says.

use crate::arch::Arch;
use crate::instruction::Instruction;
use crate::modifier::Kind;
use crate::opcode::Opcode;
use crate::operand::{Address, Operand, Reg, Role, UReg};
use crate::print::{number, uniform};
use crate::row::{Number, Slot};

/// Guards of uniform operations are uniform predicates.
pub(crate) fn guard_is_uniform(instruction: &Instruction) -> bool {
    let name = instruction.row.mnemonic;
    name.starts_with('U') || name.starts_with("VOTEU") || name.starts_with("LDCU")
}

/// Mnemonic with modifiers.
pub(crate) fn mnemonic(instruction: &Instruction) -> String {
    let mut text = instruction.row.mnemonic.to_owned();
    if let Some(pseudo) = multiply_as(instruction) {
        text.push_str(pseudo);
    }
    for field in instruction.row.fields {
        let value = instruction.modifiers[field.kind as usize];
        let name = field.kind.names().get(usize::from(value)).copied().unwrap_or_default();
        if !name.is_empty() && field.hidden != Some(value) {
            text.push('.');
            text.push_str(name);
        }
    }
    text
}

/// A multiplication that moves, adds or shifts is named so, before GB20x.
fn multiply_as(instruction: &Instruction) -> Option<&'static str> {
    if instruction.opcode() != Opcode::Imad || instruction.arch >= Arch::Sm120 || instruction.flag(Kind::X) {
        return None;
    }
    let zero = |role| matches!(instruction.operand(role), Some(Operand::Reg(Reg::ZERO, _)));
    let uniform = matches!(instruction.operand(Role::C), Some(Operand::UReg(..)));
    if zero(Role::A) && zero(Role::B) && !uniform {
        return Some(".MOV");
    }
    match instruction.operand(Role::B) {
        Some(Operand::Imm(1)) => Some(".IADD"),
        Some(Operand::Imm(factor)) if zero(Role::C) && factor.is_power_of_two() => Some(".SHL"),
        _ => None,
    }
}

/// Whether an operand is printed, where the table cannot say.
pub(crate) fn shows(instruction: &Instruction, slot: &Slot, operand: Operand) -> bool {
    match (instruction.opcode(), slot.role) {
        (Opcode::Lea | Opcode::Ulea, Role::C) => instruction.flag(Kind::Hi) && !instruction.flag(Kind::Sx32),
        (Opcode::Lop3 | Opcode::Ulop3, Role::Dst) => {
            _ = operand;
            true
        }
        _ => true,
    }
}

/// What stands between two operands.
pub(crate) const fn separator(_: &Instruction, _: &Slot) -> &'static str {
    ", "
}

/// Sign of a negated source.
pub(crate) fn negation(instruction: &Instruction) -> &'static str {
    match instruction.opcode() {
        Opcode::Iadd3 | Opcode::Uiadd3 | Opcode::Iadd if instruction.flag(Kind::X) => "~",
        _ => "-",
    }
}

/// What follows a register's name.
pub(crate) const fn suffix(_: &Instruction, _: &Slot) -> &'static str {
    ""
}

/// A number that is no source.
pub(crate) fn number_text(instruction: &Instruction, _: &Slot, value: i64) -> String {
    match instruction.row.number {
        Number::Bits => format!("{value:#x}"),
        _ => number::signed(value),
    }
}

/// Where a branch goes.
pub(crate) fn target_text(_: &Instruction, target: u64, _: i64) -> String {
    format!("{target:#x}")
}

/// What follows the base of an address.
pub(crate) const fn base_suffix(_: &Instruction, memory: &Address) -> &'static str {
    if memory.wide && (memory.descriptor.is_some() || memory.uniform.is_some()) { ".64" } else { "" }
}

/// The uniform part of an address.
pub(crate) fn uniform_of_address(_: &Instruction, memory: &Address) -> Option<String> {
    memory.uniform.filter(|reg| *reg != UReg::ZERO).map(uniform)
}

/// Packed operands are bfloat16.
pub(crate) fn is_bfloat(instruction: &Instruction) -> bool {
    instruction.flag(Kind::Bf16V2)
}
