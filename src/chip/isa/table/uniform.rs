//! Uniform operations.

use crate::dsl::*;

pub(crate) static ROWS: &[Row] = &[
    row(O::Umov, 0x882, TO100, WHOLE, &[UD, any(Role::B, SlotKind::Unsigned(bits(32, 32)))], &[])
        .number(Number::Bits),
    row(O::Umov, 0x1c82, ALL, WHOLE, &[UD, ureg(Role::B, 32)], &[]).number(Number::Bits),
    row(
        O::Uflo,
        0x0bd,
        ALL,
        UNIFORM,
        &[UD, UPD0.show(Show::Used), b(Not)],
        &[f(K::NumberType, 73, 1).codes(&[5, 6]).hide(6), flag(K::Sh, 74)],
    ),
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
        &[flag(K::X, 74)],
    ),
    row(
        O::Ulea,
        0x091,
        ALL,
        UNIFORM,
        &[UD, UPD0.show(Show::Used), ua(Neg), b(Neg), c(None), unsigned(Role::Table, 75, 5), UPS0.with(K::X)],
        &[flag(K::Hi, 80), flag(K::X, 74), flag(K::Sx32, 73)],
    ),
];
