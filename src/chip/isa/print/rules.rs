//! Where the dialect departs from what the table says.

use crate::arch::Arch;
use crate::instruction::Instruction;
use crate::modifier::{Kind, Match, NumberType};
use crate::opcode::Opcode;
use crate::operand::{Address, Operand, Pred, Reg, Role, UReg};
use crate::print::{number, uniform};
use crate::row::{Form, Number, Place, Slot};

/// Guards of uniform operations are uniform predicates.
pub(crate) fn guard_is_uniform(instruction: &Instruction) -> bool {
    let name = instruction.row.mnemonic;
    name.starts_with('U')
        || name.starts_with("SYNCS.EXCH")
        || name.starts_with("VOTEU")
        || name.starts_with("LDCU")
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

/// A multiplication that moves, adds or shifts is named so; GB20x keeps the last only.
fn multiply_as(instruction: &Instruction) -> Option<&'static str> {
    if instruction.opcode() != Opcode::Imad || instruction.flag(Kind::X) {
        return None;
    }
    let zero = |role| matches!(instruction.operand(role), Some(Operand::Reg(Reg::ZERO, _)));
    let uniform = matches!(instruction.operand(Role::C), Some(Operand::UReg(..)));
    let moves = instruction.arch < Arch::Sm120;
    match instruction.operand(Role::B) {
        _ if zero(Role::A) && zero(Role::B) && !uniform => moves.then_some(".MOV"),
        Some(Operand::Imm(1)) => moves.then_some(".IADD"),
        // The disassembler knows every shift but that by 16.
        Some(Operand::Imm(factor)) if zero(Role::C) && factor.is_power_of_two() && factor != 0x1_0000 => {
            Some(".SHL")
        }
        _ => None,
    }
}

/// Whether an operand is printed, where the table cannot say.
pub(crate) fn shows(instruction: &Instruction, slot: &Slot, operand: Operand) -> bool {
    let true_predicate = matches!(operand, Operand::Pred(Pred::TRUE, false));
    match (instruction.opcode(), slot.role) {
        (Opcode::Lea | Opcode::Ulea, Role::C) => instruction.flag(Kind::Hi) && !instruction.flag(Kind::Sx32),
        (Opcode::Vote | Opcode::Voteu, Role::Dst) => {
            !matches!(operand, Operand::Reg(Reg::ZERO, _) | Operand::UReg(UReg::ZERO, _))
        }
        (Opcode::Match, Role::PDst0) => instruction.get::<Match>() == Match::All,
        (Opcode::Bar, Role::B) => operand != Operand::Number(0),
        (Opcode::Hfma2 | Opcode::Hfma2Mma | Opcode::Hmul2, Role::PSrc0) => !true_predicate,
        _ => true,
    }
}

/// A barrier whose number and count are in one register prints it for both.
pub(crate) fn prints_twice(instruction: &Instruction) -> bool {
    matches!((instruction.opcode(), instruction.operand(Role::A)), (Opcode::Bar, Some(Operand::Reg(..))))
}

/// What stands between two operands.
pub(crate) fn separator(instruction: &Instruction, before: Role, after: Role) -> &'static str {
    match instruction.opcode() {
        Opcode::P2r if before == Role::Dst => ", PR, ",
        Opcode::Brx | Opcode::Brxu | Opcode::CallRel | Opcode::RetRel | Opcode::RetAbs
            if after == Role::Target && before == Role::A =>
        {
            " "
        }
        _ => ", ",
    }
}

/// Sign of a negated source.
pub(crate) fn negation(instruction: &Instruction) -> &'static str {
    match instruction.opcode() {
        Opcode::Bra | Opcode::Flo | Opcode::Uflo | Opcode::Popc | Opcode::Upopc => "~",
        _ if instruction.flag(Kind::X) => "~",
        _ => "-",
    }
}

/// Which of the bits that keep operands stands for a source.
pub(crate) fn reuse(role: Role, form: &Form) -> u8 {
    match role {
        Role::A => 1,
        // Sums take their second source as the third.
        Role::B if form.c == Place::None && form.code == 0x200 => 6,
        Role::B => 2,
        Role::C => 4,
        _ => 0,
    }
}

/// What follows a register's name.
pub(crate) fn suffix(instruction: &Instruction, slot: &Slot) -> &'static str {
    if (instruction.opcode(), slot.role) == (Opcode::I2f, Role::B) {
        let part = match instruction.operand(Role::Table) {
            Some(Operand::Number(part)) => usize::try_from(part).unwrap_or_default(),
            _ => 0,
        };
        let halves = matches!(instruction.get(), NumberType::U16 | NumberType::S16);
        let names = if halves { ["", ".H1", "", ""] } else { ["", ".B1", ".B2", ".B3"] };
        return names.get(part).copied().unwrap_or_default();
    }
    match (instruction.opcode(), slot.role) {
        (Opcode::F2f, Role::B) if instruction.operand(Role::Table) == Some(Operand::Number(1)) => ".H1",
        (Opcode::Imma | Opcode::Bmma, Role::A) => ".ROW",
        (Opcode::Imma | Opcode::Bmma, Role::B) => ".COL",
        _ => "",
    }
}

/// A number that is no source.
pub(crate) fn number_text(instruction: &Instruction, slot: &Slot, value: i64) -> String {
    match (instruction.opcode(), slot.role) {
        (Opcode::Depbar, Role::A) => format!("SB{value}"),
        // 33 bits, of which the highest is the sign.
        (Opcode::Sel, Role::B) => number::signed((value << 31) >> 31),
        _ => match instruction.row.number {
            Number::Bits => format!("{value:#x}"),
            _ => number::signed(value),
        },
    }
}

/// Where a branch goes.
pub(crate) fn target_text(instruction: &Instruction, target: u64, distance: i64) -> String {
    match instruction.opcode() {
        // These print what is added to a register.
        Opcode::Brx | Opcode::Brxu => number::signed(distance),
        _ => number::signed(target.cast_signed()),
    }
}

/// What follows the base of an address.
pub(crate) const fn base_suffix(instruction: &Instruction, memory: &Address) -> &'static str {
    match (memory.wide, memory.descriptor.is_some() || memory.uniform.is_some()) {
        (true, true) => ".64",
        (false, true)
            if matches!(instruction.opcode(), Opcode::Ldg | Opcode::Stg | Opcode::Ld | Opcode::St) =>
        {
            ".U32"
        }
        _ => "",
    }
}

/// The uniform part of an address.
pub(crate) fn uniform_of_address(instruction: &Instruction, memory: &Address) -> Option<String> {
    let always = matches!(
        instruction.opcode(),
        Opcode::AtomsPopcInc
            | Opcode::AtomsArrive
            | Opcode::SyncsArrive
            | Opcode::SyncsPhasechk
            | Opcode::SyncsCctl
    );
    memory.uniform.filter(|reg| always || *reg != UReg::ZERO).map(uniform)
}

/// Packed operands are bfloat16.
pub(crate) fn is_bfloat(instruction: &Instruction) -> bool {
    instruction.flag(Kind::Bf16V2)
}
