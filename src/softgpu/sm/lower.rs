//! Decoded instructions to [`Op`]s of one launch: registers become rows, constants become immediates.

mod control;
mod detail;
mod formats;
mod phases;
mod products;

use std::collections::HashMap;

use gpuvmk_isa::{Half, Instruction, Opcode, Operand, Reg, Role, SourceModifiers};

use crate::bindless::BOUND;
use crate::fault::{Cause, Exception};
use crate::launch::Constants;
use crate::numerics::half::Swizzle;
use crate::op::{Condition, Detail, Op, POOL, Place, Source, Space, TRUE, UNIFORM_ROWS, ZERO_ROW};
use crate::row::{Kept, LANES};

/// Rows of immediates and constants, one for each word.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub rows: Vec<Kept>,
    found: HashMap<u32, u16>,
}

impl Pool {
    fn row(&mut self, word: u32) -> u16 {
        if word == 0 {
            return ZERO_ROW;
        }
        if let Some(row) = self.found.get(&word) {
            return *row;
        }
        // A page of code has few instructions, with two words each at most.
        let row = POOL.saturating_add(u16::try_from(self.rows.len()).unwrap_or(u16::MAX));
        self.rows.push(Kept([word; LANES]));
        self.found.insert(word, row);
        row
    }
}

/// What instructions of a launch are lowered with.
pub(crate) struct Lower<'a> {
    pub registers: u16,
    pub constants: &'a Constants,
    pub pool: &'a mut Pool,
}

const fn condition(index: u8, negate: bool) -> Condition {
    Condition { index, negate }
}

impl Lower<'_> {
    fn register(&self, reg: Reg) -> Result<u16, Cause> {
        if reg == Reg::ZERO {
            return Ok(ZERO_ROW);
        }
        let number = u16::from(reg.0);
        if number < self.registers {
            Ok(UNIFORM_ROWS + number)
        } else {
            Err(Cause::Exception(Exception::RegisterOutOfRange))
        }
    }

    /// The row of a uniform register; those beyond an architecture's 63 read as zero.
    fn uniform(number: u8) -> u16 {
        u16::from(number).min(ZERO_ROW)
    }

    fn modified(row: u16, high: u16, modifiers: SourceModifiers) -> Source {
        let swizzle = match modifiers.half {
            Half::H1H0 => Swizzle::H1H0,
            Half::F32 => Swizzle::Single,
            Half::H0H0 => Swizzle::H0H0,
            Half::H1H1 => Swizzle::H1H1,
        };
        Source { row, high, absolute: modifiers.abs, negate: modifiers.neg, swizzle }
    }

    fn source(&mut self, operand: Option<Operand>, wide: bool) -> Result<Source, Cause> {
        Ok(match operand {
            None => Source::ZERO,
            Some(Operand::Reg(reg, modifiers)) => {
                let row = self.register(reg)?;
                Self::modified(row, following(row), modifiers)
            }
            Some(Operand::UReg(reg, modifiers)) => {
                let row = Self::uniform(reg.0);
                Self::modified(row, following(row), modifiers)
            }
            // Of a double the upper half.
            Some(Operand::Imm(word)) if wide => Source { high: self.pool.row(word), ..Source::ZERO },
            Some(Operand::Imm(word)) => Source { row: self.pool.row(word), ..Source::ZERO },
            Some(Operand::Number(number)) => {
                let word = u32::try_from(number & i64::from(u32::MAX)).unwrap_or(0);
                Source { row: self.pool.row(word), ..Source::ZERO }
            }
            Some(Operand::Const { bank, offset, modifiers }) => {
                let [low, high] = [0, 4].map(|more| self.constants.word(bank, u32::from(offset) + more));
                let row = self.pool.row(low);
                let high = if wide { self.pool.row(high) } else { ZERO_ROW };
                Self::modified(row, high, modifiers)
            }
            Some(Operand::Bindless { modifiers, .. }) => {
                Self::modified(BOUND, if wide { BOUND + 1 } else { ZERO_ROW }, modifiers)
            }
            Some(_) => return Err(Cause::Exception(Exception::IllegalEncoding)),
        })
    }

    /// The row of the handle and the offset of a constant whose buffer is known when it runs.
    pub fn bindless(instruction: &Instruction) -> Option<(u16, u32)> {
        [Role::A, Role::B, Role::C, Role::Address].into_iter().find_map(|role| {
            match instruction.operand(role)? {
                Operand::Bindless { handle, offset, .. } => Some((Self::uniform(handle.0), offset.into())),
                // The offset is in the load's own modifiers.
                Operand::BindlessAt { handle, .. } => Some((Self::uniform(handle.0), 0)),
                _ => None,
            }
        })
    }

    fn address(&self, operand: Option<Operand>, space: Space) -> Result<Option<(Source, Place)>, Cause> {
        let Some(Operand::Address(address)) = operand else { return Ok(None) };
        let row = self.register(address.base)?;
        let uniform = address.uniform.map_or(ZERO_ROW, |reg| Self::uniform(reg.0));
        let place = Place {
            space,
            wide: address.wide,
            uniform,
            offset: address.offset,
            scale: u8::try_from(address.stride.max(1).ilog2()).unwrap_or(0),
        };
        Ok(Some((Source { row, high: following(row), ..Source::ZERO }, place)))
    }

    /// Masks that stand where others have tables or data, and those of WARPSYNC, which are in one of three
    /// places.
    fn masks(&mut self, instruction: &Instruction, op: &mut Op) -> Result<(), Cause> {
        let mask = match op.opcode {
            Opcode::P2r | Opcode::R2p => instruction.operand(Role::Table),
            Opcode::BmovFromReg => instruction.operand(Role::Data),
            // Without a mask all lanes are meant.
            Opcode::Bra if control::asks_for_lanes(instruction) && instruction.operand(Role::A).is_none() => {
                op.a.negate = true;
                None
            }
            Opcode::Warpsync => {
                let held = instruction.operand(Role::A).or_else(|| instruction.operand(Role::Table));
                Some(held.unwrap_or(Operand::Imm(u32::MAX)))
            }
            _ => None,
        };
        if mask.is_some() {
            op.b = self.source(mask, false)?;
        }
        Ok(())
    }

    /// An instruction as an operation.
    pub fn instruction(&mut self, instruction: &Instruction) -> Result<Op, Cause> {
        let opcode = instruction.opcode();
        let predicate = |role| match instruction.operand(role) {
            Some(Operand::Pred(pred, not)) => Some(condition(pred.0 & TRUE, not)),
            Some(Operand::UPred(pred, not)) => Some(condition(pred.0 & TRUE | 8, not)),
            _ => None,
        };
        let wide = is_double(opcode) || opcode as u8 == Opcode::Jmp as u8;
        let (d, to_uniform) = match instruction.operand(Role::Dst) {
            Some(Operand::Reg(reg, _)) => (self.register(reg)?, false),
            Some(Operand::UReg(reg, _)) => (Self::uniform(reg.0), true),
            _ => (ZERO_ROW, false),
        };
        let uniform = to_uniform || opcode.name().starts_with('U') && !opcode.name().starts_with("UCG");
        let guard = instruction.guard;
        // Operations of the uniform unit are guarded by uniform predicates; those that leave the lanes are
        // not.
        let bank = if uniform && !leaves_lanes(opcode) { 8 } else { 0 };
        let mut op = Op {
            opcode,
            uniform,
            guard: condition(guard.pred.0 & TRUE | bank, guard.not),
            d,
            a: self.source(instruction.operand(Role::A), wide)?,
            b: self.source(instruction.operand(Role::B), wide)?,
            c: self.source(instruction.operand(Role::C), wide || wide_addend(opcode))?,
            to: [Role::PDst0, Role::PDst1].map(|role| predicate(role).map_or(TRUE, |to| to.index)),
            from: [Role::PSrc0, Role::PSrc1, Role::PSrc2]
                .map(|role| predicate(role).unwrap_or(Condition::ALWAYS)),
            detail: Detail::None,
        };
        self.masks(instruction, &mut op)?;
        op.detail = self.detail(instruction, &mut op)?;
        Ok(op)
    }
}

/// Operations whose result is the warp's, and whose operands are the lanes'.
const fn leaves_lanes(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::R2ur | Opcode::S2ur | Opcode::Redux | Opcode::Voteu | Opcode::Elect)
}

const fn is_double(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Dadd | Opcode::Dmul | Opcode::Dfma | Opcode::Dsetp)
}

const fn wide_addend(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::ImadWide | Opcode::UimadWide | Opcode::ImadHi | Opcode::UimadHi)
}

/// The row behind one; that of zero is followed by itself.
pub(crate) const fn following(row: u16) -> u16 {
    if row == ZERO_ROW { row } else { row.saturating_add(1) }
}
