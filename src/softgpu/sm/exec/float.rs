//! Single precision.

use gpuvmk_isa::Opcode as O;

use super::context::{Done, put};
use super::integer::combine;
use crate::numerics::float::{self, Mode};
use crate::op::{Detail, Op, Source};
use crate::row::{Row, each, mask as lanes};
use crate::warp::Warp;

const SIGN: u32 = (-0.0_f32).to_bits();

/// A source with magnitude and sign as its modifiers say.
#[inline(always)]
pub(super) fn source(warp: &Warp, pool: &[Row], source: Source) -> Row {
    let row = warp.row(pool, source.row);
    if !source.absolute && !source.negate {
        return *row;
    }
    let keep = if source.absolute { !SIGN } else { u32::MAX };
    let flip = if source.negate { SIGN } else { 0 };
    each(|lane| row[lane] & keep ^ flip)
}

/// Lanes whose relation a comparison accepts.
#[inline(always)]
fn compare(a: &Row, b: &Row, accepted: u8, flush: bool) -> u32 {
    lanes(|lane| float::relation(a[lane], b[lane], flush) & u32::from(accepted) != 0)
}

#[inline(always)]
pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Row], mask: u32) -> Done {
    let a = source(warp, pool, op.a);
    let b = source(warp, pool, op.b);
    let result = match (op.opcode, op.detail) {
        (O::Fadd, Detail::Float(mode, _)) => add(&a, &b, mode),
        (O::Fmul, Detail::Float(mode, scale)) => multiply(&a, &b, scale.into(), mode),
        (O::Ffma, Detail::Float(mode, _)) => {
            let c = source(warp, pool, op.c);
            fused(&a, &b, &c, mode)
        }
        (_, Detail::Extreme(mode, how)) => {
            let smaller = warp.lanes(op.from[0]);
            let signs =
                |lane: usize| [op.a, op.b].iter().fold(0, |sign, s| sign ^ warp.row(pool, s.row)[lane]);
            each(|lane| {
                let larger = smaller >> lane & 1 == 0;
                let picked = float::pick(a[lane], b[lane], larger, how.nan_wins, mode.flush);
                if how.signs && picked != float::NAN { picked & !SIGN | signs(lane) & SIGN } else { picked }
            })
        }
        (O::Fsel, _) => {
            let first = warp.lanes(op.from[0]);
            each(|lane| if first >> lane & 1 == 1 { a[lane] } else { b[lane] })
        }
        (O::Fchk, _) => {
            let special = lanes(|lane| float::division_is_special(a[lane], b[lane]));
            warp.put_predicate(op.to[0], special, mask);
            return Ok(());
        }
        (_, Detail::Function(function)) => {
            // Its source is the second one.
            each(|lane| function.of_word(b[lane]))
        }
        (_, Detail::Compare { accepted, combine: how, flush, number, .. }) => {
            let found = compare(&a, &b, accepted, flush);
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

#[inline(always)]
fn add(a: &Row, b: &Row, mode: Mode) -> Row {
    if mode.is_plain() {
        return each(|lane| float::canonical(f32::from_bits(a[lane]) + f32::from_bits(b[lane])));
    }
    each(|lane| float::add(a[lane], b[lane], mode))
}

#[inline(always)]
fn multiply(a: &Row, b: &Row, scale: i32, mode: Mode) -> Row {
    if mode.is_plain() && scale == 0 {
        return each(|lane| float::canonical(f32::from_bits(a[lane]) * f32::from_bits(b[lane])));
    }
    each(|lane| float::multiply(a[lane], b[lane], scale, mode))
}

#[inline(always)]
fn fused(a: &Row, b: &Row, c: &Row, mode: Mode) -> Row {
    if mode.is_plain() {
        return each(|lane| {
            let (a, b, c) = (f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane]));
            float::canonical(a.mul_add(b, c))
        });
    }
    each(|lane| float::fused(a[lane], b[lane], c[lane], mode))
}
