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
        &[D, a(None), b(Neg), c(None), PS0],
        &[f(K::NumberType, 72, 1).codes(SIGN).hide(S32)],
    )
    .number(Number::Bits),
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
    )
    .number(Number::Bits),
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
    // The third source is a predicate of the whole warp.
    row(
        O::Plop3,
        0x81c,
        ALL,
        WHOLE,
        &[PD0, PD1, PS0, PS1, UPS2, any(Role::Table, SlotKind::SplitTable), unsigned(Role::Table2, 16, 8)],
        &[],
    )
    .named("PLOP3.LUT")
    .fixed(&[(bits(67, 1), 1)]),
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
        TO100,
        TWO,
        &[D, a(None), b(None), PS0],
        &[f(K::NumberType, 73, 1).codes(SIGN).hide(S32)],
    ),
    row(
        O::Vimnmx,
        0x048,
        (crate::Arch::Sm90, crate::Arch::Sm90),
        TWO,
        &[D, PD0.show(Show::Used), PD1.show(Show::Used), a(None), b(None), PS0],
        &[f(K::NumberType, 72, 1).codes(SIGN).hide(S32)],
    ),
    row(O::VimnmxU16x2, 0x048, (crate::Arch::Sm90, crate::Arch::Sm90), TWO, PAIRS, &[])
        .named("VIMNMX.U16x2")
        .fixed(&[(bits(72, 2), 2)]),
    row(O::VimnmxS16x2, 0x048, (crate::Arch::Sm90, crate::Arch::Sm90), TWO, PAIRS, &[])
        .named("VIMNMX.S16x2")
        .fixed(&[(bits(72, 2), 3)]),
    row(
        O::Vimnmx,
        0x048,
        (crate::Arch::Sm100, crate::Arch::Sm100),
        TWO,
        &[D, PD0.show(Show::UsedOrNew), PD1.show(Show::UsedOrNew), a(None), b(None), PS0],
        &[f(K::NumberType, 72, 1).codes(SIGN).hide(S32)],
    ),
    row(
        O::Vimnmx,
        0x048,
        SM120,
        TWO,
        &[D, PD0.show(Show::Used), PD1.show(Show::Used), a(None), b(None), PS0],
        &[f(K::NumberType, 72, 1).codes(SIGN)],
    ),
    row(O::Iabs, 0x013, ALL, TWO, &[D, b(None)], &[]),
    row(O::Mov, 0x402, SM120, WHOLE, &[D, unsigned(Role::B, 24, 64)], &[f(K::Long, 0, 0).codes(&[1])])
        .number(Number::Bits),
    row(
        O::Sel,
        0x407,
        SM120,
        WHOLE,
        &[D, a(None), unsigned(Role::B, 32, 33), PS0],
        &[f(K::Long, 0, 0).codes(&[1])],
    )
    .number(Number::Bits),
    row(O::Sel, 0x607, SM120, WHOLE, &[D, a(None), reg(Role::B, 32), PS0], &[f(K::Long, 0, 0).codes(&[1])]),
    row(
        O::Iadd,
        0x035,
        SM120,
        TWO,
        &[D, PD0.show(Show::Used), a(Neg), b(Neg), PS0.with(K::X)],
        &[flag(K::Long, 73), flag(K::X, 74)],
    ),
    row(
        O::Imnmx,
        0x017,
        SM120,
        TWO,
        &[PD0, PD1, D, a(None), b(None), PS0, PS1],
        &[f(K::NumberType, 73, 2).codes(SIGN64).hide(S32)],
    ),
    row(O::Popc, 0x109, ALL, TWO, &[D, b(Not)], &[]),
    row(
        O::Flo,
        0x100,
        ALL,
        TWO,
        &[D, PD0.show(Show::Used), b(Not)],
        &[f(K::NumberType, 73, 1).codes(SIGN).hide(S32), flag(K::Sh, 74)],
    ),
    row(O::Brev, 0x101, ALL, TWO, &[D, b(None)], &[]),
    row(O::Bmsk, 0x01b, ALL, TWO, &[D, a(None), b(None)], &[flag(K::Wrap, 75)]),
    row(
        O::Sgxt,
        0x01a,
        ALL,
        TWO,
        &[D, a(None), b(None)],
        &[flag(K::Wrap, 75), f(K::NumberType, 73, 1).codes(SIGN).hide(S32)],
    ),
    row(O::Idp4a, 0x026, ALL, TWO, &[D, a(None), b(None), c(Neg)], IDP4),
    row(O::Idp2a, 0x026, ALL, TWO, &[D, a(None), b(None), c(Neg)], IDP2)
        .named("IDP.2A.LO")
        .fixed(&[(bits(76, 2), 1)]),
    row(O::Idp2aHi, 0x026, ALL, TWO, &[D, a(None), b(None), c(Neg)], IDP2)
        .named("IDP.2A.HI")
        .fixed(&[(bits(76, 2), 3)]),
    row(O::Vabsdiff4, 0x015, ALL, THREE, &[D, PD0.show(Show::Used), a(None), b(None), c(None)], ACC)
        .named("VABSDIFF4.U8"),
    row(
        O::Vabsdiff,
        0x014,
        ALL,
        THREE,
        &[D, PD0.show(Show::Used), a(None), b(None), c(None)],
        &[f(K::NumberType, 73, 1).codes(SIGN).hide(S32)],
    ),
];

/// Operands of extremes of two halves.
const PAIRS: &[crate::row::Slot] = &[D, PD0.show(Show::Used), PD1.show(Show::Used), a(None), b(None), PS0];
const ACC: &[crate::row::Field] = &[flag(K::Acc, 75)];
const IDP4: &[crate::row::Field] =
    &[f(K::NumberType, 73, 1).codes(&[1, 2]), f(K::SecondType, 74, 1).codes(&[1, 2])];
const IDP2: &[crate::row::Field] =
    &[f(K::NumberType, 73, 1).codes(&[3, 4]), f(K::SecondType, 74, 1).codes(&[1, 2])];
