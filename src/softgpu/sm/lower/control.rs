//! Modifiers of control flow and of what lanes do together.

use gpuvmk_isa::modifier::{BarrierMode, BarrierReduction, Branch, Match, NumberType, Redux, Shuffle, Vote};
use gpuvmk_isa::{Instruction, Kind, Opcode as O, Operand, Role};

use crate::op::{Detail, Op, TRUE};

/// A number, or that of a barrier or of a special register.
pub(super) fn number(instruction: &Instruction, role: Role) -> u8 {
    match instruction.operand(role) {
        Some(Operand::Number(number)) => u8::try_from(number).unwrap_or(0),
        Some(Operand::Barrier(number) | Operand::Special(number)) => number,
        _ => 0,
    }
}

/// True for operands that are signed.
pub(super) fn signed(instruction: &Instruction) -> bool {
    !matches!(instruction.get::<NumberType>(), NumberType::U32 | NumberType::U64)
}

/// True for BRA.DIV.
fn is_divergent(instruction: &Instruction) -> bool {
    instruction.has(Kind::Branch) && matches!(instruction.get(), Branch::Divergent)
}

/// True for BRA.CONV.
fn is_converged(instruction: &Instruction) -> bool {
    instruction.has(Kind::Branch) && matches!(instruction.get(), Branch::Converged)
}

/// True for those that ask whether all lanes of a mask are there.
pub(super) fn asks_for_lanes(instruction: &Instruction) -> bool {
    is_divergent(instruction) || is_converged(instruction)
}

/// True for BRA.U.
fn is_uniform(instruction: &Instruction) -> bool {
    instruction.has(Kind::Branch) && matches!(instruction.get(), Branch::Uniform)
}

/// The details of one of these; none if that is not executed.
pub(super) fn of_control(instruction: &Instruction, op: &Op) -> Option<Detail> {
    Some(match op.opcode {
        O::Nop | O::Exit | O::Yield | O::Nanosleep | O::Membar | O::Errbar | O::Cgaerrbar | O::Depbar => {
            Detail::None
        }
        O::Cctl
        | O::Ldgdepbar
        | O::SyncsCctl
        | O::Warpsync
        | O::WarpsyncCollective
        | O::Endcollective
        | O::B2r
        | O::Bpt
        | O::Kill => Detail::None,
        // Which lanes may be elected is known where all may.
        O::Elect if op.from[0].index != TRUE || op.from[0].negate => return None,
        O::R2ur | O::Elect => Detail::None,
        O::S2r | O::S2ur | O::Cs2r | O::Cs2ur => Detail::Special(number(instruction, Role::Special)),
        O::Bra | O::Jmp | O::CallRel | O::CallAbs | O::Brx | O::Brxu | O::RetRel | O::RetAbs => {
            match instruction.operand(Role::Target) {
                Some(Operand::Target(distance)) if instruction.flag(Kind::AnyLane) => {
                    Detail::AnyLane(distance)
                }
                Some(Operand::Target(distance)) if is_divergent(instruction) => Detail::Divergent(distance),
                Some(Operand::Target(distance)) if is_converged(instruction) => Detail::Converged(distance),
                Some(Operand::Target(distance)) if is_uniform(instruction) => Detail::AllLanes(distance),
                Some(Operand::Target(distance) | Operand::Number(distance)) => Detail::Target(distance),
                Some(Operand::Absolute(address)) => Detail::Target(address.cast_signed()),
                _ => Detail::Target(0),
            }
        }
        O::Lepc => match instruction.operand(Role::Target) {
            Some(Operand::Target(distance)) => Detail::Target(distance),
            // Without a place it is its own.
            _ => Detail::Target(-16),
        },
        O::BmovToReg if instruction.flag(Kind::Clear) && number(instruction, Role::Barrier) < 16 => {
            Detail::TakenBarrier(number(instruction, Role::Barrier))
        }
        O::BmovToReg | O::BmovFromReg => match number(instruction, Role::Barrier) {
            barrier if barrier < 16 => Detail::Barrier(barrier),
            word => Detail::WarpWord(word),
        },
        O::Bssy | O::Bsync | O::Break => Detail::Barrier(number(instruction, Role::Barrier)),
        O::Vote | O::Voteu => Detail::Choice(instruction.get::<Vote>() as u8, 0),
        O::Match => {
            let wide = matches!(instruction.get(), NumberType::U64);
            Detail::Choice(instruction.get::<Match>() as u8, wide.into())
        }
        O::Redux => Detail::Choice(instruction.get::<Redux>() as u8, u8::from(signed(instruction))),
        O::Shfl => Detail::Shuffle(instruction.get::<Shuffle>()),
        O::Bar => Detail::Choice(
            instruction.get::<BarrierMode>() as u8,
            instruction.get::<BarrierReduction>() as u8,
        ),
        _ => return None,
    })
}
