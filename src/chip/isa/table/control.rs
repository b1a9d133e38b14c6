//! Control: branches, barriers, ends.

use crate::dsl::*;
use crate::row::Slot;

const TARGET: Slot = any(Role::Target, SlotKind::Target48);
const TARGET_FAR: Slot = any(Role::Target, SlotKind::Target56);
const BARRIER: Slot = any(Role::Barrier, SlotKind::Barrier(16));
const UNTIL90: (crate::Arch, crate::Arch) = TO89;

pub(crate) static ROWS: &[Row] = &[
    row(O::Nop, 0x918, ALL, WHOLE, &[], &[]),
    row(O::Exit, 0x94d, ALL, WHOLE, &[PS0.show(Show::Used)], &[]).fixed(&[(bits(84, 2), 0)]),
    row(O::Bra, 0x947, UNTIL90, WHOLE, &[PS0.show(Show::Used), TARGET], &[flag(K::U, 32)]),
    row(O::Bra, 0x947, SM90, WHOLE, &[PS0.show(Show::Used), TARGET_FAR], &[flag(K::U, 32)]),
    row(
        O::Bssy,
        0x945,
        ALL,
        WHOLE,
        &[BARRIER, PS0.show(Show::Used), any(Role::Target, SlotKind::Target30)],
        &[],
    ),
    row(O::Yield, 0x946, ALL, WHOLE, &[PS0.show(Show::Used)], &[]),
    row(O::Warpsync, 0x948, SM90, WHOLE, &[PS0.show(Show::Used)], &[]).named("WARPSYNC.ALL"),
    row(O::Bsync, 0x941, ALL, WHOLE, &[PS0.show(Show::Used), BARRIER], &[]),
    row(
        O::Bar,
        0xb1d,
        ALL,
        WHOLE,
        &[unsigned(Role::A, 54, 4)],
        &[f(K::BarrierMode, 77, 3), flag(K::DeferBlocking, 80)],
    ),
];
