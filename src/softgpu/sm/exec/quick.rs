//! Runs of the instructions that [`crate::quick`] has forms for.

use super::context::INSTRUCTION;
use super::float::plain;
use super::integer::{combine, compared, logic, shift};
use crate::lower::following;
use crate::numerics::integer as words;
use crate::program::Page;
use crate::quick::Kind;
use crate::row::{ALL, Row, each, each_wide, pair};
use crate::warp::Warp;

/// Writes a row.
#[inline(always)]
fn put(warp: &mut Warp, row: u16, value: &Row) {
    // `Quick::of` takes none that is not there.
    warp.put(row, value, ALL);
}

/// Runs instructions from the group's place on, `most` at most, as long as they have such a form and are in
/// the page, and says how many ran. All lanes run them.
#[inline(always)]
pub(super) fn run(warp: &mut Warp, page: &Page, base: u64, most: u32) -> u32 {
    let pool = &page.pool[..];
    let place = |pc: u64| usize::try_from(pc.wrapping_sub(base) / INSTRUCTION).unwrap_or(usize::MAX);
    let (mut index, mut ran) = (place(warp.group.pc), 0);
    let mut pc = warp.group.pc;
    while ran < most
        && let Some(quick) = page.quick.get(index)
    {
        let (a, b, c) = (warp.row(pool, quick.a), warp.row(pool, quick.b), warp.row(pool, quick.c));
        let result = match quick.kind {
            Kind::None => break,
            Kind::Branch(distance, conditions) => {
                let taken =
                    conditions.into_iter().fold(ALL, |taken, condition| taken & warp.lanes(condition));
                if taken != 0 && taken != ALL {
                    break;
                }
                pc = pc.wrapping_add(INSTRUCTION);
                index += 1;
                ran += 1;
                if taken == ALL {
                    pc = pc.wrapping_add(distance.cast_unsigned());
                    index = place(pc);
                    if !pc.is_multiple_of(INSTRUCTION) {
                        break;
                    }
                }
                continue;
            }
            Kind::Copy | Kind::Constants(false) => *b,
            Kind::Constants(true) => {
                let rows = [*b, *c];
                put(warp, quick.d, &rows[0]);
                put(warp, following(quick.d), &rows[1]);
                (pc, index, ran) = (pc.wrapping_add(INSTRUCTION), index + 1, ran + 1);
                continue;
            }
            Kind::Sum([x, y, z], more) => each(|lane| {
                let sum = (a[lane] ^ x).wrapping_add(b[lane] ^ y).wrapping_add(c[lane] ^ z);
                sum.wrapping_add(more)
            }),
            Kind::Multiply => each(|lane| a[lane].wrapping_mul(b[lane]).wrapping_add(c[lane])),
            Kind::MultiplyWide(signed) => {
                let above = warp.row(pool, quick.high);
                // Two loops, each of which the compiler makes of vectors.
                let sum = |lane: usize, signed: bool| {
                    words::product(a[lane], b[lane], signed).wrapping_add(pair(c[lane], above[lane]))
                };
                let [low, high] = if signed {
                    each_wide(|lane| sum(lane, true))
                } else {
                    each_wide(|lane| sum(lane, false))
                };
                put(warp, quick.d, &low);
                put(warp, following(quick.d), &high);
                (pc, index, ran) = (pc.wrapping_add(INSTRUCTION), index + 1, ran + 1);
                continue;
            }
            Kind::Logic(table) => logic(a, b, c, table),
            Kind::Shift(how) => shift(a, b, c, how),
            Kind::Add(signs, false) => plain::add([a, b], signs),
            Kind::Add(signs, true) => plain::add_flushed([a, b], signs),
            Kind::Scale(signs, false) => plain::multiply([a, b], signs),
            Kind::Scale(signs, true) => plain::multiply_flushed([a, b], signs),
            Kind::Fused(signs, false) => plain::fused([a, b, c], signs),
            Kind::Fused(signs, true) => plain::fused_flushed([a, b, c], signs),
            Kind::Compare(accepted, signed, how, with, to) => {
                let found = compared(a, b, accepted, signed);
                let with = warp.lanes(with);
                warp.put_predicate(to[0], combine(found, with, how), ALL);
                warp.put_predicate(to[1], combine(!found, with, how), ALL);
                (pc, index, ran) = (pc.wrapping_add(INSTRUCTION), index + 1, ran + 1);
                continue;
            }
        };
        put(warp, quick.d, &result);
        (pc, index, ran) = (pc.wrapping_add(INSTRUCTION), index + 1, ran + 1);
    }
    warp.group.pc = pc;
    warp.count += u64::from(ran);
    ran
}
