//! Across the lanes of a warp, and between lanes' and uniform registers.

use crate::dsl::*;
use crate::row::{Field, Slot};

const SPECIAL: Slot = any(Role::Special, SlotKind::Special(72));
const VOTE: &[Field] = &[f(K::Vote, 72, 2)];
const SHUFFLE: &[Field] = &[f(K::Shuffle, 58, 2)];
const LANE: Slot = unsigned(Role::B, 53, 5);
const CLAMP: Slot = unsigned(Role::C, 40, 13);
const WIDTH: Field = f(K::Short, 80, 1).codes(&[1, 0]);

pub(crate) static ROWS: &[Row] = &[
    row(O::S2r, 0x919, ALL, WHOLE, &[D, SPECIAL], &[]),
    row(O::S2ur, 0x9c3, ALL, WHOLE, &[UD, SPECIAL], &[]),
    row(O::Cs2r, 0x805, ALL, WHOLE, &[D, SPECIAL], &[WIDTH]),
    row(O::Cs2ur, 0x8cb, SM100, WHOLE, &[UD, SPECIAL], &[WIDTH]),
    row(
        O::Redux,
        0x3c4,
        SM80,
        WHOLE,
        &[UD, a(None)],
        &[f(K::Redux, 78, 3), f(K::NumberType, 73, 1).codes(&[5, 6]).hide(5)],
    ),
    row(
        O::Credux,
        0x2cc,
        SM100,
        WHOLE,
        &[UD, a(None)],
        &[
            f(K::Redux, 79, 1).codes(&[5, 4]),
            f(K::NumberType, 73, 1).codes(&[5, 6]).hide(5),
            flag(K::Nan, 77),
        ],
    ),
    row(O::Vote, 0x806, ALL, WHOLE, &[D, PD0, PS0], VOTE),
    row(O::Voteu, 0x886, ALL, WHOLE, &[UD, UPD0, PS0], VOTE),
    row(
        O::Match,
        0x3a1,
        ALL,
        WHOLE,
        &[PD0, D, a(None)],
        &[f(K::Match, 79, 1), f(K::NumberType, 73, 1).codes(&[5, 7]).hide(5)],
    ),
    row(O::Elect, 0x82f, SM90, WHOLE, &[PD0, UD, PS0], &[]),
    row(O::Shfl, 0x389, ALL, WHOLE, &[PD0, D, a(None), reg(Role::B, 32), reg(Role::C, 64)], SHUFFLE),
    row(O::Shfl, 0x589, ALL, WHOLE, &[PD0, D, a(None), reg(Role::B, 32), CLAMP], SHUFFLE),
    row(O::Shfl, 0x989, ALL, WHOLE, &[PD0, D, a(None), LANE, reg(Role::C, 64)], SHUFFLE),
    row(O::Shfl, 0xf89, ALL, WHOLE, &[PD0, D, a(None), LANE, CLAMP], SHUFFLE),
    row(O::R2ur, 0x3c2, TO89, WHOLE, &[PD0.show(Show::Used), UD, a(None)], &[]),
    row(O::R2ur, 0x2ca, SM90, WHOLE, &[PD0.show(Show::Used), UD, a(None)], &[]),
    row(O::P2r, 0x803, ALL, WHOLE, &[D, a(None), unsigned(Role::Table, 32, 32)], &[f(K::Byte, 76, 2)]),
    row(O::R2p, 0x804, ALL, WHOLE, &[a(None), unsigned(Role::Table, 32, 32)], &[]).named("R2P PR,"),
];
