//! Uniform operations: once for a warp.

use crate::dsl::*;
use crate::row::{Field, Slot};

const SIGN: Field = f(K::NumberType, 73, 1).codes(&[5, 6]).hide(6);
const X: Field = flag(K::X, 74);
const MULTIPLY: &[Slot] = &[UD, UPD0.show(Show::Used), ua(None), b(Neg), c(Neg), UPS0.with(K::X)];

pub(crate) static ROWS: &[Row] = &[
    row(O::Umov, 0x882, ALL, WHOLE, &[UD, unsigned(Role::B, 32, 32)], &[]).number(Number::Bits),
    row(O::Umov, 0x1482, SM120, WHOLE, &[UD, unsigned(Role::B, 24, 64)], &[f(K::Long, 0, 0).codes(&[1])])
        .number(Number::Bits),
    row(O::Umov, 0x1c82, ALL, WHOLE, &[UD, ureg(Role::B, 32)], &[]).number(Number::Bits),
    row(O::Usel, 0x087, ALL, UNIFORM, &[UD, ua(None), b(None), UPS0], &[]).number(Number::Bits),
    row(O::Uprmt, 0x096, ALL, UNIFORM, &[UD, ua(None), b(None), c(None)], &[]).number(Number::Bits),
    row(
        O::Uiadd3,
        0x090,
        ALL,
        UNIFORM,
        &[
            UD,
            UPD0.show(Show::UsedOrNew),
            UPD1.show(Show::UsedOrNew),
            ua(Neg),
            b(Neg),
            c(Neg),
            UPS0.with(K::X),
            UPS1.with(K::X),
        ],
        &[X],
    ),
    row(O::Uimad, 0x0a4, ALL, UNIFORM, MULTIPLY, &[SIGN, X]),
    row(O::UimadWide, 0x0a5, ALL, UNIFORM, MULTIPLY, &[SIGN, X]),
    row(O::UimadHi, 0x0a7, ALL, UNIFORM, MULTIPLY, &[SIGN, X]),
    row(
        O::Uisetp,
        0x08c,
        ALL,
        UNIFORM,
        &[UPD0, UPD1, ua(None), b(None), UPS0, UPS2.with(K::Ex)],
        &[f(K::Compare, 76, 3), SIGN, f(K::BoolOp, 74, 2), flag(K::Ex, 72)],
    ),
    row(
        O::Ulea,
        0x091,
        ALL,
        UNIFORM,
        &[UD, UPD0.show(Show::Used), ua(Neg), b(Neg), c(None), unsigned(Role::Table, 75, 5), UPS0.with(K::X)],
        &[flag(K::Hi, 80), X, flag(K::Sx32, 73)],
    )
    .number(Number::Bits),
    row(
        O::Ulop3,
        0x092,
        ALL,
        UNIFORM,
        &[UPD0.show(Show::Used), UD, ua(None), b(None), c(None), unsigned(Role::Table, 72, 8), UPS0],
        &[flag(K::Pand, 80)],
    )
    .named("ULOP3.LUT")
    .number(Number::Bits),
    row(
        O::Uplop3,
        0x89c,
        ALL,
        WHOLE,
        &[
            UPD0,
            UPD1,
            UPS0,
            UPS1,
            UPS2,
            any(Role::Table, SlotKind::SplitTable),
            unsigned(Role::Table2, 16, 8),
        ],
        &[],
    )
    .named("UPLOP3.LUT"),
    row(
        O::Ushf,
        0x099,
        ALL,
        UNIFORM,
        &[UD, ua(None), b(None), c(None)],
        &[f(K::Direction, 76, 1), flag(K::Wrap, 75), f(K::ShiftType, 73, 2), flag(K::Hi, 80)],
    )
    .number(Number::Bits),
    row(
        O::Uvimnmx,
        0x04a,
        SM100,
        UNIFORM,
        &[UD, UPD0.show(Show::Used), UPD1.show(Show::Used), ua(None), b(None), UPS0],
        &[f(K::NumberType, 72, 1).codes(&[5, 6])],
    ),
    row(O::Uflo, 0x0bd, ALL, UNIFORM, &[UD, UPD0.show(Show::Used), b(Not)], &[SIGN, flag(K::Sh, 74)]),
    row(O::Upopc, 0x0bf, ALL, UNIFORM, &[UD, b(Not)], &[]),
    row(O::Ubrev, 0x0be, ALL, UNIFORM, &[UD, b(None)], &[]),
    row(O::Ubmsk, 0x09b, ALL, UNIFORM, &[UD, ua(None), b(None)], &[flag(K::Wrap, 75)]),
    row(
        O::Uffma,
        0x055,
        SM100,
        UNIFORM,
        &[UD, ua(NegAbs), b(NegAbs), c(NegAbs)],
        &[flag(K::Ftz, 80), flag(K::Fmz, 76), f(K::Rounding, 78, 2), flag(K::Sat, 77)],
    )
    .number(Number::Single),
];
