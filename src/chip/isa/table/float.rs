//! Single precision.

use crate::dsl::*;

/// Modifiers of sums and products, as they print.
const FTZ: crate::row::Field = flag(K::Ftz, 80);
const RND: crate::row::Field = f(K::Rounding, 78, 2);
const SAT: crate::row::Field = flag(K::Sat, 77);

pub(crate) static ROWS: &[Row] = &[
    row(O::Fadd, 0x021, ALL, SUM, &[D, a(NegAbs), b(NegAbs)], &[FTZ, RND, SAT]).number(Number::Single),
    row(
        O::Fmul,
        0x020,
        ALL,
        TWO,
        &[D, a(NegAbs), b(NegAbs)],
        &[FTZ, flag(K::Fmz, 76), f(K::Scale, 84, 3).codes(&[255, 3, 2, 1, 0, 6, 5, 4]), RND, SAT],
    )
    .number(Number::Single),
    row(
        O::Ffma,
        0x023,
        ALL,
        THREE,
        &[D, a(NegAbs), b(NegAbs), c(NegAbs)],
        &[FTZ, flag(K::Fmz, 76), RND, SAT],
    )
    .number(Number::Single),
];
