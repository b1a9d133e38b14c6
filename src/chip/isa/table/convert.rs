//! Conversions between numbers.

use crate::dsl::*;
use crate::row::{Field, Slot};

const FTZ: Field = flag(K::Ftz, 80);
const RND: Field = f(K::Rounding, 78, 2);
const TO_INTEGER: Field = f(K::IntegerRounding, 78, 2);
/// Half, single, double in two bits.
const FLOATS: &[u8] = &[255, 9, 10, 11];
/// Signedness, and the size above it.
const INTEGERS: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];
const F32: u8 = 10;
const S32: u8 = 6;
const FROM: Field = f(K::NumberType, 84, 2).codes(FLOATS);
const F2F: &[Field] = &[FTZ, f(K::ResultType, 75, 3).codes(&[255, 9, 10, 11, 12]), FROM, RND];
const F2I: &[Field] = &[
    FTZ,
    f(K::ResultType, 72, 1).high(75, 2).codes(INTEGERS).hide(S32),
    FROM.hide(F32),
    TO_INTEGER,
    flag(K::Ntz, 77),
];
const I2F: &[Field] = &[
    f(K::ResultType, 75, 2).codes(FLOATS).hide(F32),
    f(K::NumberType, 74, 1).high(84, 2).codes(INTEGERS).hide(S32),
    RND,
];
/// Source and result of one type.
const FRND: &[Field] = &[
    FTZ,
    f(K::NumberType, 75, 2)
        .high(84, 2)
        .codes(&[255, 255, 255, 255, 255, 9, 255, 255, 255, 255, 10, 255, 255, 255, 255, 11])
        .hide(F32),
    TO_INTEGER,
];

const fn convert(op: crate::Opcode, code: u16, fields: &'static [Field]) -> Row {
    row(op, code, ALL, TWO, OPERANDS, fields).number(Number::Single)
}
/// With the byte or half of the source that is converted.
const PART: &[Slot] = &[D, b(None), unsigned(Role::Table, 60, 2).show(Show::Never)];
const OPERANDS: &[Slot] = &[D, b(NegAbs)];
/// The upper half of the source.
const UPPER: &[Slot] =
    &[D, any(Role::B, SlotKind::Reg(32, NegAbs)), unsigned(Role::Table, 60, 2).show(Show::Never)];

pub(crate) static ROWS: &[Row] = &[
    convert(O::F2f, 0x104, F2F),
    convert(O::F2f, 0x110, F2F),
    row(O::F2f, 0x304, ALL, WHOLE, UPPER, F2F).number(Number::Single).fixed(&[(bits(60, 2), 1)]),
    convert(O::F2i, 0x105, F2I),
    convert(O::F2i, 0x111, F2I),
    row(O::I2f, 0x106, ALL, TWO, PART, I2F),
    row(O::I2f, 0x112, ALL, TWO, PART, I2F),
    convert(O::Frnd, 0x107, FRND),
    convert(O::Frnd, 0x113, FRND),
    row(
        O::I2fp,
        0x045,
        SM80,
        TWO,
        &[D, b(None)],
        &[
            f(K::ResultType, 75, 3).codes(&[255, 255, 10]),
            f(K::NumberType, 74, 1).high(84, 2).codes(&[255, 255, 255, 255, 5, 6]),
            f(K::Rounding, 78, 2).codes(&[0, 255, 255, 3]),
        ],
    ),
    row(
        O::F2fp,
        0x03e,
        (crate::Arch::Sm80, crate::Arch::Sm86),
        TWO,
        &[D, a(NegAbs), b(NegAbs)],
        &[
            flag(K::SatFinite, 77),
            flag(K::Relu, 75),
            f(K::ResultType, 76, 1).codes(&[9, 12]).hide(9),
            f(K::Pack, 0, 0).codes(&[1]),
            f(K::Rounding, 79, 2).codes(&[0, 255, 255, 3]),
        ],
    )
    .fixed(&[(bits(64, 8), 255)])
    .number(Number::Single),
    row(
        O::F2fp,
        0x03e,
        (crate::Arch::Sm89, crate::Arch::Sm120),
        TWO,
        &[D, a(NegAbs), b(NegAbs)],
        &[
            flag(K::SatFinite, 77),
            flag(K::Relu, 75),
            f(K::ResultType, 76, 1).codes(&[9, 12]),
            f(K::NumberType, 0, 0).codes(&[F32]),
            f(K::Pack, 0, 0).codes(&[1]),
            f(K::Rounding, 79, 2).codes(&[0, 255, 255, 3]),
        ],
    )
    .fixed(&[(bits(64, 8), 255)])
    .number(Number::Single),
];
