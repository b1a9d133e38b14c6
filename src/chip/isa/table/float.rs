//! Single precision.

use crate::dsl::*;
use crate::row::{Field, Slot};

const FTZ: Field = flag(K::Ftz, 80);
const RND: Field = f(K::Rounding, 78, 2);
const SAT: Field = flag(K::Sat, 77);
const FMZ: Field = flag(K::Fmz, 76);
const FACTORS: &[Slot] = &[D, a(NegAbs), b(NegAbs)];
const MULTIPLY: &[Field] = &[FTZ, FMZ, f(K::Scale, 84, 3).codes(&[255, 3, 2, 1, 0, 6, 5, 4]), RND, SAT];
const CHOICE: &[Slot] = &[D, a(NegAbs), b(NegAbs), PS0];
const EXTREME: &[Field] = &[FTZ, flag(K::Nan, 81), flag(K::XorSign, 82)];

pub(crate) static ROWS: &[Row] = &[
    row(O::Fadd, 0x021, ALL, SUM, FACTORS, &[FTZ, RND, SAT]).number(Number::Single),
    row(O::Fadd, 0x021, ALL, SUM, FACTORS, &[FTZ, RND, SAT]).number(Number::Single).fixed(NO_THIRD),
    row(O::Fmul, 0x020, ALL, TWO, FACTORS, MULTIPLY).number(Number::Single),
    row(O::Fmul, 0x020, ALL, TWO, FACTORS, MULTIPLY).number(Number::Single).fixed(NO_THIRD),
    row(O::Ffma, 0x023, ALL, THREE, &[D, a(NegAbs), b(NegAbs), c(NegAbs)], &[FTZ, FMZ, RND, SAT])
        .number(Number::Single),
    row(O::Fmnmx, 0x009, ALL, TWO, CHOICE, EXTREME).number(Number::Single),
    row(O::Fmnmx, 0x009, ALL, TWO, CHOICE, EXTREME).number(Number::Single).fixed(NO_THIRD),
    row(O::Fsel, 0x008, ALL, TWO, &[D, a(NegAbs), b(NegAbs), PS0], &[FTZ]).number(Number::Single),
    row(
        O::Fset,
        0x00a,
        ALL,
        TWO,
        &[D, a(NegAbs), b(NegAbs), PS0],
        &[f(K::FloatCompare, 76, 4), FTZ, f(K::BoolOp, 74, 2)],
    )
    .named("FSET.BF")
    .number(Number::Single),
    row(
        O::Fsetp,
        0x00b,
        ALL,
        TWO,
        &[PD0, PD1, a(NegAbs), b(NegAbs), PS0],
        &[f(K::FloatCompare, 76, 4), FTZ, f(K::BoolOp, 74, 2)],
    )
    .number(Number::Single),
    row(O::Mufu, 0x108, ALL, TWO, &[D, b(NegAbs)], &[f(K::Mufu, 74, 4), flag(K::F16, 72)])
        .number(Number::Single),
    row(O::Fchk, 0x102, ALL, TWO, &[PD0, a(NegAbs), b(NegAbs)], &[]).number(Number::Single),
];
