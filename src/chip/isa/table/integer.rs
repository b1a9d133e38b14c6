//! Integer arithmetic and logic, moves and selections.

use crate::dsl::*;

/// Codes of a type's sign bit: unsigned, signed.
const SIGN: &[u8] = &[5, 6];
/// The same with a bit for 64 bits above it.
const SIGN64: &[u8] = &[5, 6, 7, 8];
const S32: u8 = 6;

pub(crate) static ROWS: &[Row] = &[
    row(O::Mov, 0x002, TO100, TWO, &[D, b(None), unsigned(Role::Table, 72, 4).show(Show::Never)], &[])
        .number(Number::Bits),
    row(
        O::Mov,
        0x002,
        SM120,
        TWO,
        &[D, b(None), unsigned(Role::Table, 72, 4).show(Show::Never)],
        &[flag(K::Long, 80)],
    )
    .number(Number::Bits),
    row(O::Sel, 0x007, ALL, TWO, &[D, a(None), b(None), PS0], &[]).number(Number::Bits),
    row(O::Prmt, 0x016, ALL, THREE, &[D, a(None), b(None), c(None)], &[f(K::Permute, 72, 3)])
        .number(Number::Bits),
    row(
        O::Iadd3,
        0x010,
        ALL,
        THREE,
        &[
            D,
            PD0.show(Show::UsedOrNew),
            PD1.show(Show::UsedOrNew),
            a(Neg),
            b(Neg),
            c(Neg),
            PS0.with(K::X),
            PS1.with(K::X),
        ],
        &[flag(K::X, 74)],
    ),
    row(O::Viadd, 0x036, SM90, TWO, &[D, a(Neg), b(Neg)], &[]).number(Number::Bits),
    row(
        O::Viaddmnmx,
        0x046,
        SM90,
        THREE,
        &[D, a(None), b(None), c(None), PS0],
        &[f(K::NumberType, 73, 1).codes(SIGN).hide(S32)],
    ),
    row(
        O::Imad,
        0x024,
        ALL,
        THREE,
        &[D, PD0.show(Show::Used), a(None), b(Neg), c(Neg), PS0.with(K::X)],
        &[f(K::NumberType, 73, 1).codes(SIGN).hide(S32), flag(K::X, 74)],
    ),
    row(
        O::ImadWide,
        0x025,
        ALL,
        THREE,
        &[D, PD0.show(Show::Used), a(None), b(Neg), c(Neg), PS0.with(K::X)],
        &[f(K::NumberType, 73, 1).codes(SIGN).hide(S32), flag(K::X, 74)],
    ),
    row(
        O::ImadHi,
        0x027,
        ALL,
        THREE,
        &[D, PD0.show(Show::Used), a(None), b(Neg), c(Neg), PS0.with(K::X)],
        &[f(K::NumberType, 73, 1).codes(SIGN).hide(S32), flag(K::X, 74)],
    ),
    row(
        O::Isetp,
        0x00c,
        TO100,
        TWO,
        &[PD0, PD1, a(None), b(None), PS0, PS2.with(K::Ex)],
        &[
            f(K::Compare, 76, 3),
            f(K::NumberType, 73, 1).codes(SIGN).hide(S32),
            f(K::BoolOp, 74, 2),
            flag(K::Ex, 72),
        ],
    ),
    row(
        O::Isetp,
        0x00c,
        SM120,
        TWO,
        &[PD0, PD1, a(None), b(None), PS0, PS2.with(K::Ex)],
        &[
            f(K::Compare, 76, 3),
            f(K::NumberType, 73, 1).high(80, 1).codes(SIGN64).hide(S32),
            f(K::BoolOp, 74, 2),
            flag(K::Ex, 72),
        ],
    ),
    row(
        O::Lea,
        0x011,
        ALL,
        THREE,
        &[D, PD0.show(Show::Used), a(Neg), b(Neg), c(None), unsigned(Role::Table, 75, 5), PS0.with(K::X)],
        &[flag(K::Hi, 80), flag(K::X, 74), flag(K::Sx32, 73)],
    ),
    row(
        O::Lop3,
        0x012,
        ALL,
        THREE,
        &[PD0.show(Show::Used), D, a(None), b(None), c(None), unsigned(Role::Table, 72, 8), PS0],
        &[flag(K::Pand, 80)],
    )
    .named("LOP3.LUT")
    .number(Number::Bits),
    row(
        O::Plop3,
        0x81c,
        ALL,
        WHOLE,
        &[PD0, PD1, PS0, PS1, PS2, any(Role::Table, SlotKind::SplitTable), unsigned(Role::Table2, 16, 8)],
        &[],
    )
    .named("PLOP3.LUT"),
    row(
        O::Shf,
        0x019,
        ALL,
        THREE,
        &[D, a(None), b(None), c(None)],
        &[f(K::Direction, 76, 1), flag(K::Wrap, 75), f(K::ShiftType, 73, 2), flag(K::Hi, 80)],
    )
    .number(Number::Bits),
    row(
        O::Imnmx,
        0x017,
        TO89,
        TWO,
        &[D, a(None), b(None), PS0],
        &[f(K::NumberType, 73, 1).codes(SIGN).hide(S32)],
    ),
    row(
        O::Vimnmx,
        0x048,
        SM90,
        TWO,
        &[D, PD0.show(Show::Used), PD1.show(Show::Used), a(None), b(None), PS0],
        &[f(K::NumberType, 72, 1).codes(SIGN).hide(S32)],
    ),
    row(O::Iabs, 0x013, ALL, TWO, &[D, b(None)], &[]),
];
