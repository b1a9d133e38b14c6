//! Double precision.

use crate::dsl::*;
use crate::row::Field;

const RND: Field = f(K::Rounding, 78, 2);

pub(crate) static ROWS: &[Row] = &[
    row(O::Dadd, 0x029, ALL, SUM_HIGH, &[D, a(NegAbs), b(NegAbs)], &[RND]).number(Number::Double),
    row(O::Dmul, 0x028, ALL, TWO, &[D, a(NegAbs), b(NegAbs)], &[RND]).number(Number::Double),
    row(O::Dfma, 0x02b, ALL, THREE, &[D, a(NegAbs), b(NegAbs), c(NegAbs)], &[RND]).number(Number::Double),
    row(
        O::Dsetp,
        0x02a,
        ALL,
        SUM,
        &[PD0, PD1, a(NegAbs), b(NegAbs), PS0],
        &[
            f(K::FloatCompare, 76, 4).codes(&[16, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17]),
            f(K::BoolOp, 74, 2),
        ],
    )
    .number(Number::Double),
];
