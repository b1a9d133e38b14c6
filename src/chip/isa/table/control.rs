//! Control: branches, barriers, ends.

use crate::dsl::*;
use crate::row::{Field, Slot};

/// Distances of 48 bits.
const NEAR: Slot = any(Role::Target, SlotKind::Target48);
/// Distances of 56 bits.
const FAR: Slot = any(Role::Target, SlotKind::Target56);
const SYNC_TARGET: Slot = any(Role::Target, SlotKind::Target30);
const BARRIER: Slot = any(Role::Barrier, SlotKind::Barrier(16));
/// What BMOV moves.
const MOVED: Slot = any(Role::Barrier, SlotKind::WarpState(24));
/// Condition besides the guard.
const WHEN: Slot = PS0.show(Show::Used);
/// The same of the whole warp.
const WARPS: Slot = any(Role::PSrc1, SlotKind::UPred(24, Some(27)));
const BRANCH: &[Field] = &[f(K::Branch, 32, 2), flag(K::AnyLane, 84)];
const NO_INC: &[Field] = &[flag(K::NoInc, 86)];
const NO_DEC: &[Field] = &[flag(K::NoDec, 86)];
const KIND: &[Field] = &[f(K::Convergence, 72, 2)];

pub(crate) static ROWS: &[Row] = &[
    row(O::Nop, 0x918, ALL, WHOLE, &[], &[]),
    row(O::Exit, 0x94d, ALL, WHOLE, &[WHEN], &[]),
    row(O::Kill, 0x95b, ALL, WHOLE, &[WHEN], &[]),
    row(O::Bra, 0x947, TO89, WHOLE, &[WHEN, NEAR], BRANCH),
    row(O::Bra, 0x947, SM90, WHOLE, &[WHEN, FAR], BRANCH),
    row(O::Bra, 0x1947, SM80TO89, WHOLE, &[WHEN, ua(Not), NEAR], BRANCH),
    row(O::Bra, 0x1947, (crate::Arch::Sm90, crate::Arch::Sm90), WHOLE, &[WHEN, ua(Not), FAR], BRANCH),
    row(O::Bra, 0x1947, SM100, WHOLE, &[WHEN, ua(None), FAR], BRANCH),
    row(O::Bra, 0x1547, TO89, WHOLE, &[WHEN, WARPS, NEAR], BRANCH),
    row(O::Bra, 0x1547, (crate::Arch::Sm90, crate::Arch::Sm90), WHOLE, &[WHEN, WARPS, FAR], BRANCH),
    row(O::Bra, 0x1547, SM100, WHOLE, &[WHEN, WARPS, FAR], BRANCH),
    row(O::Brx, 0x949, TO89, WHOLE, &[WHEN, a(None), NEAR], &[]),
    row(O::Brx, 0x949, SM90, WHOLE, &[WHEN, a(None), FAR], &[]),
    row(O::Brxu, 0x1958, SM90, WHOLE, &[WHEN, ua(None), FAR], &[]),
    row(O::CallAbs, 0x343, ALL, WHOLE, &[WHEN, a(None)], NO_INC),
    row(O::CallAbs, 0x943, ONLY90, WHOLE, &[WHEN, any(Role::Target, SlotKind::Absolute56)], NO_INC),
    row(O::Jmp, 0x14a, ONLY90, CONST, &[WHEN, any(Role::A, SlotKind::FormB(None))], &[]),
    row(O::CallRel, 0x344, TO89, WHOLE, &[WHEN, a(None), NEAR], NO_INC),
    row(O::CallRel, 0x344, SM90, WHOLE, &[WHEN, a(None), FAR], NO_INC),
    row(O::CallRel, 0x944, TO89, WHOLE, &[WHEN, NEAR], NO_INC),
    row(O::CallRel, 0x944, SM90, WHOLE, &[WHEN, FAR], NO_INC),
    row(O::RetRel, 0x950, TO89, WHOLE, &[WHEN, a(None), NEAR], NO_DEC).fixed(&[(bits(85, 1), 0)]),
    row(O::RetRel, 0x950, SM90, WHOLE, &[WHEN, a(None), FAR], NO_DEC).fixed(&[(bits(85, 1), 0)]),
    row(O::RetAbs, 0x950, TO89, WHOLE, &[WHEN, a(None), NEAR], NO_DEC).fixed(&[(bits(85, 1), 1)]),
    row(O::RetAbs, 0x950, SM90, WHOLE, &[WHEN, a(None), FAR], NO_DEC).fixed(&[(bits(85, 1), 1)]),
    row(O::Lepc, 0x34e, TO90, WHOLE, &[D], &[]),
    row(O::Lepc, 0x94e, SM90, WHOLE, &[D, any(Role::Target, SlotKind::Target58)], &[]),
    row(O::Bssy, 0x945, TO90, WHOLE, &[WHEN, BARRIER, SYNC_TARGET], &[]),
    row(O::Bssy, 0x945, SM100, WHOLE, &[WHEN, BARRIER, SYNC_TARGET], KIND),
    row(O::Bsync, 0x941, TO90, WHOLE, &[WHEN, BARRIER], &[]),
    row(O::Bsync, 0x941, SM100, WHOLE, &[WHEN, BARRIER], KIND),
    row(O::Break, 0x942, TO90, WHOLE, &[WHEN, BARRIER], &[]),
    row(O::Break, 0x942, SM100, WHOLE, &[WHEN, BARRIER], KIND),
    row(O::Yield, 0x946, ALL, WHOLE, &[WHEN], &[]),
    row(O::Warpsync, 0x348, TO89, WHOLE, &[WHEN, reg(Role::A, 32)], &[]),
    row(O::Warpsync, 0x348, SM90, WHOLE, &[WHEN, a(None)], &[]),
    row(O::Warpsync, 0x948, TO89, WHOLE, &[WHEN, unsigned(Role::Table, 32, 32)], &[]),
    row(O::Warpsync, 0x948, SM90, WHOLE, &[WHEN], &[]).named("WARPSYNC.ALL"),
    row(O::WarpsyncCollective, 0x348, TO89, WHOLE, &[WHEN, a(None), NEAR], &[]).fixed(&[(bits(86, 1), 1)]),
    row(O::WarpsyncCollective, 0x348, SM90, WHOLE, &[WHEN, a(None), FAR], &[]).fixed(&[(bits(86, 1), 1)]),
    row(O::WarpsyncCollective, 0x948, SM90, WHOLE, &[WHEN, FAR], &[])
        .named("WARPSYNC.COLLECTIVE.ALL")
        .fixed(&[(bits(86, 1), 1)]),
    row(O::Endcollective, 0x91b, SM90, WHOLE, &[WHEN], &[]),
    row(O::BmovToReg, 0x355, ALL, WHOLE, &[D, MOVED], &[flag(K::Clear, 84)]).named("BMOV.32"),
    row(O::BmovFromReg, 0x356, ALL, WHOLE, &[MOVED, reg(Role::Data, 32)], &[flag(K::Pquad, 84)])
        .named("BMOV.32"),
    row(O::Bpt, 0x95c, ALL, WHOLE, &[unsigned(Role::Table, 34, 20)], &[f(K::Trap, 84, 3)]),
    row(O::Nanosleep, 0x95d, ALL, WHOLE, &[WHEN, unsigned(Role::Table, 32, 32)], &[flag(K::WarpWide, 85)]),
    row(O::Bar, 0xb1d, ALL, WHOLE, &[BAR_ID, BAR_COUNT], BAR),
    row(O::Bar, 0xb1d, ALL, WHOLE, &[BAR_ID, BAR_COUNT, PS0], BAR_RED),
    row(O::Bar, 0x31d, ALL, WHOLE, &[reg(Role::A, 32)], BAR),
    row(O::B2r, 0x31c, ALL, WHOLE, &[D, PD0.show(Show::Used)], &[])
        .named("B2R.RESULT")
        .fixed(&[(bits(78, 1), 1)]),
    row(O::UcgabarArv, 0x19c7, SM90, WHOLE, &[], &[]),
    row(O::UcgabarWait, 0x1dc7, SM90, WHOLE, &[], &[]),
];

const BAR_ID: Slot = unsigned(Role::A, 54, 4);
const BAR_COUNT: Slot = unsigned(Role::B, 42, 12);
const BAR: &[Field] = &[f(K::BarrierMode, 77, 3).codes(&[0, 1, 255, 3, 4]), flag(K::DeferBlocking, 80)];
const BAR_RED: &[Field] = &[
    f(K::BarrierMode, 77, 3).codes(&[255, 255, 2]),
    f(K::BarrierReduction, 74, 2),
    flag(K::DeferBlocking, 80),
];
