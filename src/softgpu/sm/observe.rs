//! A grid with somebody who looks on: every instruction, and what it changes.

use std::fmt;

use gpuvmk_isa::Opcode as O;

use crate::exec::{Context, Turn, touched};
use crate::fault::Cause;
use crate::op::{Detail, Op, UNIFORM_ROWS};
use crate::program::{Code, PAGE};
use crate::row::Kept;
use crate::twin::Twin;
use crate::warp::Warp;

/// Bytes of an instruction.
const INSTRUCTION: u64 = 16;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// R0 to R254.
    General(u16),
    /// UR0 to UR62.
    Uniform(u16),
    /// P0 to P6.
    Predicate(u16),
    /// UP0 to UP6.
    UniformPredicate(u16),
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::General(number) => write!(f, "R{number}"),
            Self::Uniform(number) => write!(f, "UR{number}"),
            Self::Predicate(number) => write!(f, "P{number}"),
            Self::UniformPredicate(number) => write!(f, "UP{number}"),
        }
    }
}

/// A register that has another value now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub register: Register,
    /// Lanes in which the value is another one.
    pub lanes: u32,
    /// The values of all lanes.
    pub values: [u32; 32],
}

/// An access of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedAccess {
    /// Each lane's address; only those of the step's lanes count.
    pub addresses: [u32; 32],
    /// Bytes of a lane.
    pub bytes: u32,
    /// It is a store.
    pub store: bool,
    /// It is an atomic.
    pub atomic: bool,
}

/// An instruction that a warp has executed.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its address.
    pub pc: u64,
    /// Place of the CTA in the grid.
    pub cta: [u32; 3],
    /// Warp in the CTA.
    pub warp: u32,
    /// Lanes of the group that its guard let run.
    pub lanes: u32,
    /// Registers that have other values now.
    pub changes: &'a [Change],
    /// Predicates that have other values now, and the lanes in which they hold.
    pub predicates: &'a [(Register, u32)],
    /// Shared memory that it accessed, if all lanes did.
    pub shared: Option<SharedAccess>,
    /// It is a barrier of the CTA.
    pub barrier: bool,
}

/// Who looks on.
pub trait Observer {
    /// A warp has executed an instruction.
    fn step(&mut self, step: &Step<'_>);
}

/// What an instruction accesses of shared memory.
fn shared(warp: &Warp, context: &Context<'_>, op: &Op, pool: &[Kept]) -> Option<SharedAccess> {
    let (addresses, bytes) = touched(warp, context, op, pool)?;
    let (store, atomic) = (matches!(op.opcode, O::Sts | O::St), matches!(op.detail, Detail::Atomic(..)));
    Some(SharedAccess { addresses, bytes, store, atomic })
}

/// Registers of a warp that differ from what they were.
fn changes(before: &[Kept], now: &[Kept]) -> Vec<Change> {
    let mut changes = Vec::new();
    for (index, (before, now)) in (0..).zip(before.iter().zip(now)) {
        let lanes = crate::row::mask(|lane| before.0[lane] != now.0[lane]);
        if lanes != 0 {
            let register = match index {
                UNIFORM_ROWS.. => Register::General(index - UNIFORM_ROWS),
                _ => Register::Uniform(index),
            };
            changes.push(Change { register, lanes, values: now.0 });
        }
    }
    changes
}

fn predicates(before: &[u32; 16], now: &[u32; 16]) -> Vec<(Register, u32)> {
    let differs = |index: &usize| before[*index] != now[*index];
    let named = |index: usize| {
        let number = u16::try_from(index % 8).unwrap_or(0);
        let register =
            if index < 8 { Register::Predicate(number) } else { Register::UniformPredicate(number) };
        (register, now[index])
    };
    (0..16).filter(differs).map(named).collect()
}

/// Runs a warp for `budget` instructions at most, and tells of each.
///
/// # Errors
/// Why it cannot go on. The group's place is that of the instruction.
pub(crate) fn run(
    observer: &mut dyn Observer,
    twin: Twin,
    warp: &mut Warp,
    context: &mut Context<'_>,
    code: &mut Code,
    budget: u32,
) -> Result<Turn, Cause> {
    for _ in 0..budget {
        let group = warp.group;
        if group.mask == 0 {
            return Ok(if warp.live == 0 { Turn::Ended } else { Turn::Blocked });
        }
        let base = group.pc & !(PAGE - 1);
        let page = code.page(base, context.program, context.view)?;
        let op = usize::try_from((group.pc - base) / INSTRUCTION).ok().and_then(|index| page.op(index));
        let Some(Ok((op, _))) = op else {
            let turn = twin.in_page(warp, context, page, base, &mut [1, warp.fairness])?;
            return Ok(turn.unwrap_or(Turn::Quantum));
        };
        let op = *op;
        let shared = shared(warp, context, &op, &page.pool);
        let lanes = warp.lanes(op.guard) & group.mask;
        let (rows, flags, count) = (warp.registers().to_vec(), *warp.predicates(), warp.count);
        let mut left = [1, warp.fairness];
        let turn = twin.in_page(warp, context, page, base, &mut left)?;
        warp.fairness = left[1];
        // Nothing was executed where another group has its turn now.
        if warp.count != count {
            observer.step(&Step {
                pc: group.pc,
                cta: context.place,
                warp: warp.index,
                lanes,
                changes: &changes(&rows, warp.registers()),
                predicates: &predicates(&flags, warp.predicates()),
                shared: shared.filter(|_| lanes != 0),
                barrier: op.opcode == O::Bar,
            });
        }
        match turn {
            None | Some(Turn::Quantum) => {}
            Some(turn) => return Ok(turn),
        }
    }
    Ok(Turn::Quantum)
}
