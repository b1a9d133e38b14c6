//! Across the lanes of a warp, and between lanes' and uniform registers.

use crate::dsl::*;

pub(crate) static ROWS: &[Row] = &[
    row(O::S2r, 0x919, ALL, WHOLE, &[D, any(Role::Special, SlotKind::Special(72))], &[]),
    row(
        O::Cs2r,
        0x805,
        ALL,
        WHOLE,
        &[D, any(Role::Special, SlotKind::Special(72))],
        &[f(K::Short, 80, 1).codes(&[1, 0])],
    ),
    row(
        O::Redux,
        0x3c4,
        SM80,
        WHOLE,
        &[UD, a(None)],
        &[f(K::Redux, 78, 3), f(K::NumberType, 73, 1).codes(&[5, 6]).hide(5)],
    ),
    row(O::Vote, 0x806, ALL, WHOLE, &[D, PD0, PS0], &[f(K::Vote, 72, 2)]),
    row(O::Voteu, 0x886, ALL, WHOLE, &[UD, UPD0, PS0], &[f(K::Vote, 72, 2)]),
    row(O::S2ur, 0x9c3, ALL, WHOLE, &[UD, any(Role::Special, SlotKind::Special(72))], &[]),
];
