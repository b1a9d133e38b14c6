//! Packed half precision.

use crate::dsl::*;
use crate::row::Field;

const FTZ: Field = flag(K::Ftz, 80);
const BF16: Field = flag(K::Bf16V2, 85);
const SAT: Field = flag(K::Sat, 77);
const FMA: &[Field] = &[BF16, flag(K::ResultF32, 78), FTZ, flag(K::Fmz, 76), flag(K::Relu, 79), SAT];
const PREDICATE: crate::row::Slot = PS0.with(K::Relu);

pub(crate) static ROWS: &[Row] = &[
    row(O::Hadd2, 0x030, ALL, SUM, &[D, a(Half), b(Half)], &[BF16, flag(K::ResultF32, 78), FTZ, SAT])
        .number(Number::Halves),
    row(O::Hfma2, 0x031, ALL, THREE, &[D, a(Half), b(Half), c(Half), PREDICATE], FMA).number(Number::Halves),
    row(
        O::Hfma2Mma,
        0x035,
        (crate::Arch::Sm80, crate::Arch::Sm90),
        THREE,
        &[D, a(Half), b(Half), c(Half), PREDICATE],
        FMA,
    )
    .number(Number::Halves),
    row(O::Hmul2, 0x032, ALL, TWO, &[D, a(Half), b(Half)], FMA).number(Number::Halves),
    row(
        O::Hset2,
        0x033,
        ALL,
        SUM,
        &[D, a(Half), b(Half), PS0],
        &[flag(K::Bf16V2, 65), flag(K::Bf, 71), f(K::FloatCompare, 76, 4), FTZ, f(K::BoolOp, 69, 2)],
    )
    .number(Number::Halves),
    row(
        O::Hsetp2,
        0x034,
        ALL,
        SUM,
        &[PD0, PD1, a(Half), b(Half), PS0],
        &[flag(K::Bf16V2, 65), flag(K::HAnd, 71), f(K::FloatCompare, 76, 4), FTZ, f(K::BoolOp, 69, 2)],
    )
    .number(Number::Halves),
    row(
        O::Hmnmx2,
        0x040,
        SM80,
        TWO,
        &[D, a(Half), b(Half), PS0],
        &[BF16, FTZ, flag(K::Nan, 81), flag(K::XorSign, 82)],
    )
    .number(Number::Halves),
];
