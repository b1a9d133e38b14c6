//! Control: branches, convergence, barriers, ends.

use std::sync::atomic::{Ordering, fence};

use gpuvmk_isa::Opcode as O;
use gpuvmk_isa::modifier::{BarrierMode, BarrierReduction};

use super::context::{Flow, INSTRUCTION, put, put_wide};
use crate::cta::Arrival;
use crate::fault::Cause;
use crate::op::{Detail, Op, ZERO_ROW};
use crate::row::{Kept, LANES, low, mask as lanes, pair};
use crate::warp::{Reduction, Wait, Warp};

/// Operations that are run without lanes, too.
pub(super) const fn is_control(opcode: O) -> bool {
    matches!(
        opcode,
        O::Bra
            | O::Brx
            | O::Brxu
            | O::Jmp
            | O::CallRel
            | O::CallAbs
            | O::RetRel
            | O::RetAbs
            | O::Exit
            | O::Kill
            | O::Bssy
            | O::Bsync
            | O::Break
            | O::Warpsync
            | O::WarpsyncCollective
            | O::Yield
            | O::Bar
    )
}

#[inline(always)]
pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Result<Flow, Cause> {
    let next = warp.group.pc.wrapping_add(INSTRUCTION);
    // Of control flow the first predicate is a second guard. Of BAR it is what is counted.
    let mask = if op.opcode == O::Bar { mask } else { mask & warp.lanes(op.from[0]) };
    match (op.opcode, op.detail) {
        (O::Bra, Detail::Target(distance)) => {
            let taken = mask & warp.lanes(op.from[1]);
            branch(warp, next, next.wrapping_add(distance.cast_unsigned()), taken);
        }
        (O::Bra, Detail::AllLanes(distance)) => {
            let wanted = mask & warp.lanes(op.from[1]);
            let taken = if wanted == warp.group.mask { wanted } else { 0 };
            branch(warp, next, next.wrapping_add(distance.cast_unsigned()), taken);
        }
        (O::Bra, Detail::AnyLane(distance)) => {
            let wanted = mask & warp.lanes(op.from[1]);
            let taken = if wanted == 0 { 0 } else { warp.group.mask };
            branch(warp, next, next.wrapping_add(distance.cast_unsigned()), taken);
        }
        (O::Bra, Detail::Divergent(distance) | Detail::Converged(distance)) => {
            let given = warp.row(pool, op.a.row)[Warp::first_lane(warp.group.mask)];
            let required = if op.a.negate { !given } else { given };
            let wanted = mask & warp.lanes(op.from[1]);
            let apart = required & warp.counted() & !wanted != 0;
            let goes = apart == matches!(op.detail, Detail::Divergent(_));
            let taken = if wanted != 0 && goes { warp.group.mask } else { 0 };
            branch(warp, next, next.wrapping_add(distance.cast_unsigned()), taken);
        }
        (O::CallRel, Detail::Target(distance)) if op.a.row != ZERO_ROW => {
            scatter(warp, op, pool, mask, next.wrapping_add(distance.cast_unsigned()));
        }
        (O::CallRel, Detail::Target(distance)) => {
            branch(warp, next, next.wrapping_add(distance.cast_unsigned()), mask);
        }
        (O::Jmp, _) if op.a.row != ZERO_ROW => scatter(warp, op, pool, mask, 0),
        (O::Jmp, Detail::Target(target)) => branch(warp, next, target.cast_unsigned(), mask),
        (O::CallAbs, Detail::Target(base)) => scatter(warp, op, pool, mask, base.cast_unsigned()),
        (O::Brx | O::Brxu | O::RetRel, Detail::Target(distance)) => {
            scatter(warp, op, pool, mask, next.wrapping_add(distance.cast_unsigned()));
        }
        (O::RetAbs, Detail::Target(distance)) => scatter(warp, op, pool, mask, distance.cast_unsigned()),
        (O::Exit | O::Kill, _) => {
            let ended = mask;
            // Those that stay go on behind it.
            warp.group.pc = next;
            if ended != 0 {
                warp.exit(ended);
            }
        }
        (O::Bssy, Detail::Barrier(barrier)) => {
            warp.set_barrier(barrier);
            return Ok(Flow::Next);
        }
        (O::Bsync, Detail::Barrier(barrier)) => {
            warp.group.pc = next;
            if mask != 0 {
                warp.meet(barrier);
            }
        }
        (O::Break, Detail::Barrier(barrier)) => {
            warp.leave(barrier, mask);
            return Ok(Flow::Next);
        }
        // A collective is what comes behind it, up to ENDCOLLECTIVE: all its lanes do it where they meet.
        (O::Warpsync | O::WarpsyncCollective, _) => {
            warp.group.pc = next;
            let required = warp.row(pool, op.b.row)[Warp::first_lane(warp.group.mask)];
            if mask != 0 && required & warp.counted() & !warp.group.mask != 0 {
                warp.park(Wait::Lanes(required));
            }
        }
        (O::Yield | O::Nanosleep, _) => {
            warp.group.pc = next;
            if mask != 0 {
                warp.give_way();
            }
        }
        (O::BmovToReg, Detail::Barrier(barrier)) => {
            let value = *warp.barrier(barrier);
            put(warp, op.d, &[value; LANES], mask)?;
            return Ok(Flow::Next);
        }
        (O::BmovToReg, Detail::TakenBarrier(barrier)) => {
            let value = std::mem::take(warp.barrier(barrier));
            put(warp, op.d, &[value; LANES], mask)?;
            return Ok(Flow::Next);
        }
        (O::BmovToReg, Detail::WarpWord(word)) => {
            let value = warp.word(word).ok_or(Cause::NotExecuted(op.opcode))?;
            put(warp, op.d, &[value; LANES], mask)?;
            return Ok(Flow::Next);
        }
        (O::BmovFromReg, Detail::WarpWord(word)) => {
            let value = warp.row(pool, op.b.row)[Warp::first_lane(mask)];
            if !warp.set_word(word, value) {
                return Err(Cause::NotExecuted(op.opcode));
            }
            return Ok(Flow::Next);
        }
        (O::Lepc, Detail::Target(distance)) => {
            let there = next.wrapping_add(distance.cast_unsigned());
            put_wide(warp, op.d, &[[low(there); LANES], [low(there >> 32); LANES]], mask)?;
            return Ok(Flow::Next);
        }
        (O::BmovFromReg, Detail::Barrier(barrier)) => {
            let value = warp.row(pool, op.b.row)[Warp::first_lane(mask)];
            warp.write_barrier(barrier, value);
            return Ok(Flow::Next);
        }
        (O::Bar, Detail::Choice(mode, of)) => return Ok(barrier(warp, op, pool, mask, (mode, of))),
        (O::Bpt, _) => return Err(Cause::Trap),
        (O::Membar, Detail::None) => {
            // Views load with acquire and store with release order at most. What is left is a store and a
            // load behind it, of which another worker, or a processor of the guest, must not see the opposite
            // order. All scopes are alike: a CTA's warps run on one thread.
            fence(Ordering::SeqCst);
            return Ok(Flow::Next);
        }
        (O::Endcollective, _) => return Ok(Flow::Next),
        (
            O::Nop | O::Errbar | O::Cgaerrbar | O::Depbar | O::Cctl | O::Ldgdepbar | O::SyncsCctl,
            Detail::None,
        ) => {
            return Ok(Flow::Next);
        }
        _ => return Err(Cause::NotExecuted(op.opcode)),
    }
    Ok(Flow::Set)
}

/// Lanes of `taken` go to `target`, the others on, and these first: so does an H200.
#[inline(always)]
fn branch(warp: &mut Warp, next: u64, target: u64, taken: u32) {
    if taken == 0 {
        warp.group.pc = next;
    } else if taken == warp.group.mask {
        warp.group.pc = target;
    } else {
        warp.group.pc = next;
        warp.part(target, taken);
    }
}

/// Each lane goes to its own target: `base` and a pair of registers. Those first that do not go, then those
/// with the first lane's target; the others do it again in their turn. So does an H200.
fn scatter(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32, base: u64) {
    let [a, high] = warp.rows(pool, op.a);
    let mut targets = [0; LANES];
    for lane in 0..LANES {
        targets[lane] = base.wrapping_add(pair(a[lane], high[lane]));
    }
    let here = warp.group.pc;
    if mask != warp.group.mask {
        warp.group.pc = here.wrapping_add(INSTRUCTION);
        if mask != 0 {
            warp.part(here, mask);
        }
        return;
    }
    let target = targets[Warp::first_lane(mask)];
    let alike = lanes(|lane| targets[lane] == target) & mask;
    if alike != mask {
        warp.part(here, mask & !alike);
    }
    warp.group.pc = target;
}

/// B2R.RESULT: what the last barrier with a reduction gave.
pub(super) fn reduced(warp: &mut Warp, op: &Op, mask: u32) -> Result<(), Cause> {
    let Reduction { holds, arrived, of_all } = warp.reduction;
    put(warp, op.d, &[holds; LANES], mask)?;
    let held = if of_all { holds == arrived } else { holds != 0 };
    warp.put_predicate(op.to[0], if held { u32::MAX } else { 0 }, mask);
    Ok(())
}

/// BAR: its number and its count are immediates, or in registers.
fn barrier(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32, (mode, of): (u8, u8)) -> Flow {
    warp.group.pc = warp.group.pc.wrapping_add(INSTRUCTION);
    if mask == 0 {
        return Flow::Set;
    }
    let lane = Warp::first_lane(mask);
    let number = warp.row(pool, op.a.row)[lane] % 16;
    let count = warp.row(pool, op.b.row)[lane];
    let holds = warp.lanes(op.from[0]) & mask;
    let barrier = number.to_le_bytes()[0];
    let arrive_only = mode == BarrierMode::Arv as u8;
    // What reduces nothing keeps the last result.
    let reduces = (mode == BarrierMode::Red as u8).then_some(of == BarrierReduction::And as u8);
    let arrival = Arrival { barrier, mask, holds, count, arrive_only, reduces };
    if !arrival.arrive_only {
        warp.park(Wait::Cta(barrier));
    }
    Flow::Arrived(arrival)
}
