//! Products of matrices, and moves of their fragments.

use crate::dsl::*;
use crate::row::{Field, Slot};

const SOURCES: &[Slot] = &[D, a(None), reg(Role::B, 32), reg(Role::C, 64)];

pub(crate) static ROWS: &[Row] = &[
    row(
        O::Hmma,
        0x23c,
        ALL,
        WHOLE,
        SOURCES,
        &[
            f(K::MatrixShape, 75, 1).high(78, 1).codes(&[0, 1, 2]),
            f(K::ResultType, 76, 1).codes(&[9, 10]),
            f(K::NumberType, 82, 2).codes(&[9, 12, 13]).hide(9),
        ],
    ),
    row(O::Imma, 0x237, ALL, WHOLE, SOURCES, IMMA).fixed(&[(bits(73, 2), 2)]),
    row(O::Bmma, 0x23d, SM80, WHOLE, SOURCES, &[])
        .named("BMMA.168256.AND.POPC")
        .fixed(&[(bits(72, 12), 0x154)]),
    row(O::Dmma, 0x23f, SM80TO89, WHOLE, SOURCES, &[]).named("DMMA.884"),
    row(O::Dmma, 0x23f, SM90, WHOLE, SOURCES, &[]).named("DMMA.8x8x4"),
    row(O::Ldsm, 0x83b, ALL, WHOLE, &[D, memory(PLAIN)], LDSM),
    row(O::Ldsm, 0x183b, ALL, WHOLE, &[D, memory(crate::row::Memory { uniform: Some(32), ..PLAIN })], LDSM),
    row(O::Stsm, 0x844, SM90, WHOLE, &[memory(PLAIN), reg(Role::Data, 32)], LDSM),
    row(O::Movm, 0x23a, ALL, WHOLE, &[D, a(None)], &[]).named("MOVM.16.MT88"),
    row(O::Movm, 0x23a, SM100, WHOLE, &[D, a(None)], &[])
        .named("MOVM.U4TO8.M832")
        .fixed(&[(bits(72, 8), 0x48)]),
];

const IMMA: &[Field] = &[
    f(K::MatrixShape, 75, 1).high(85, 2).codes(&[3, 4, 255, 255, 1, 5]),
    f(K::NumberType, 76, 1).high(83, 1).codes(&[1, 2, 14, 15]),
    f(K::SecondType, 78, 1).high(84, 1).codes(&[1, 2, 3, 4]),
    flag(K::SatInt, 82),
];
const LDSM: &[Field] = &[f(K::MatrixLoad, 78, 1), f(K::MatrixCount, 72, 2)];
