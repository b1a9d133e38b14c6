//! Single precision.

pub(super) mod plain;

use gpuvmk_isa::Opcode as O;

use super::context::{Done, put};
use super::integer::combine;
use crate::numerics::float::{self, Mode};
use crate::op::{Detail, Op, Source};
use crate::row::{Kept, Row, each, mask as lanes};
use crate::warp::Warp;

const SIGN: u32 = (-0.0_f32).to_bits();

/// A source's row, with the bits that its modifiers keep, and those that they flip.
#[derive(Clone, Copy)]
struct Operand<'a> {
    row: &'a Row,
    keep: u32,
    flip: u32,
}

impl<'a> Operand<'a> {
    #[inline(always)]
    fn of(warp: &'a Warp, pool: &'a [Kept], source: Source) -> Self {
        let keep = if source.absolute { !SIGN } else { u32::MAX };
        let flip = if source.negate { SIGN } else { 0 };
        Self { row: warp.row(pool, source.row), keep, flip }
    }

    #[inline(always)]
    fn word(&self, lane: usize) -> u32 {
        self.row[lane] & self.keep ^ self.flip
    }
}

/// A source with magnitude and sign as its modifiers say.
#[inline(always)]
pub(super) fn source(warp: &Warp, pool: &[Kept], source: Source) -> Row {
    let operand = Operand::of(warp, pool, source);
    each(|lane| operand.word(lane))
}

/// Lanes whose relation a comparison accepts.
#[inline(always)]
fn compare(a: &Operand<'_>, b: &Operand<'_>, accepted: u8, flush: bool) -> u32 {
    lanes(|lane| float::relation(a.word(lane), b.word(lane), flush) & u32::from(accepted) != 0)
}

#[inline(always)]
pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    if let (O::Fadd | O::Fmul | O::Ffma, Detail::Float(mode, scale)) = (op.opcode, op.detail) {
        let result = arithmetic(warp, op, pool, (mode, scale.into()));
        return put(warp, op.d, &result, mask);
    }
    let (a, b) = (&Operand::of(warp, pool, op.a), &Operand::of(warp, pool, op.b));
    let result = match (op.opcode, op.detail) {
        (_, Detail::Extreme(mode, how)) => {
            let smaller = warp.lanes(op.from[0]);
            let signs =
                |lane: usize| [op.a, op.b].iter().fold(0, |sign, s| sign ^ warp.row(pool, s.row)[lane]);
            each(|lane| {
                let larger = smaller >> lane & 1 == 0;
                let picked = float::pick(a.word(lane), b.word(lane), larger, how.nan_wins, mode.flush);
                if how.signs && picked != float::NAN { picked & !SIGN | signs(lane) & SIGN } else { picked }
            })
        }
        (O::Fsel, _) => {
            let first = warp.lanes(op.from[0]);
            each(|lane| if first >> lane & 1 == 1 { a.word(lane) } else { b.word(lane) })
        }
        (O::Fchk, _) => {
            let special = lanes(|lane| float::division_is_special(a.word(lane), b.word(lane)));
            warp.put_predicate(op.to[0], special, mask);
            return Ok(());
        }
        // Its source is the second one.
        (_, Detail::Function(function, false)) => each(|lane| function.of_word(b.word(lane))),
        (_, Detail::Function(function, true)) => {
            let from = warp.row(pool, op.b.row);
            let (kept, flip) = (if op.b.absolute { 0x7fff } else { 0xffff }, u32::from(op.b.negate) << 15);
            each(|lane| function.of_half((from[lane] & kept) ^ flip))
        }
        (_, Detail::Compare { accepted, combine: how, flush, number, .. }) => {
            let found = compare(a, b, accepted, flush);
            let with = warp.lanes(op.from[0]);
            let result = combine(found, with, how);
            if op.opcode == O::Fsetp {
                warp.put_predicate(op.to[0], result, mask);
                warp.put_predicate(op.to[1], combine(!found, with, how), mask);
                return Ok(());
            }
            let holds = if number { 1.0_f32.to_bits() } else { u32::MAX };
            each(|lane| if result >> lane & 1 == 1 { holds } else { 0 })
        }
        _ => return Ok(()),
    };
    put(warp, op.d, &result, mask)
}

/// FADD, FMUL and FFMA.
#[inline(always)]
fn arithmetic(warp: &Warp, op: &Op, pool: &[Kept], (mode, scale): (Mode, i32)) -> Row {
    let sources = [op.a, op.b, op.c];
    if mode.is_plain() && scale == 0 {
        // A sign is changed where the number is read, a magnitude is taken before.
        let magnitudes = sources.iter().any(|source| source.absolute);
        let changed = if magnitudes { Some(sources.map(|from| source(warp, pool, from))) } else { None };
        let sign = |source: Source| if source.negate && !magnitudes { SIGN } else { 0 };
        let signs = sources.map(sign);
        let rows = match &changed {
            Some([a, b, c]) => [a, b, c],
            None => sources.map(|source| warp.row(pool, source.row)),
        };
        let ([a, b, _], [x, y, _]) = (rows, signs);
        return match op.opcode {
            O::Fadd => plain::add([a, b], [x, y]),
            O::Fmul => plain::multiply([a, b], [x, y]),
            _ => plain::fused(rows, signs),
        };
    }
    let [a, b, c] = sources.map(|from| source(warp, pool, from));
    match op.opcode {
        O::Fadd => each(|lane| float::add(a[lane], b[lane], mode)),
        O::Fmul => each(|lane| float::multiply(a[lane], b[lane], scale, mode)),
        _ => each(|lane| float::fused(a[lane], b[lane], c[lane], mode)),
    }
}
