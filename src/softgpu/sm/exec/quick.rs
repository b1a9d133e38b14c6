//! Runs of the instructions that [`crate::quick`] has forms for.

use super::context::{Context, INSTRUCTION};
use super::float::plain;
use super::integer::{combine, compared, logic, shift};
use super::sums::{carried, scaled};
use super::{memory, special};
use crate::fault::Cause;
use crate::lower::following;
use crate::numerics::integer as words;
use crate::program::Page;
use crate::quick::Kind;
use crate::row::{ALL, Row, each, each_wide, low, pair};
use crate::warp::Warp;

/// Writes a row.
#[inline(always)]
fn put(warp: &mut Warp, row: u16, value: &Row) {
    // `Quick::of` takes none that is not there.
    warp.put(row, value, ALL);
}

/// Writes two rows.
#[inline(always)]
fn put_wide(warp: &mut Warp, row: u16, [low, high]: &[Row; 2]) {
    put(warp, row, low);
    put(warp, following(row), high);
}

/// Runs instructions from the group's place on, `most` at most, as long as they have such a form and are in
/// the page, and says how many ran. All lanes run them.
///
/// # Errors
/// Why the warp cannot go on. The group's place is that of the instruction.
#[inline(always)]
pub(crate) fn run(
    warp: &mut Warp,
    context: &mut Context<'_>,
    page: &Page,
    base: u64,
    most: u32,
) -> Result<u32, Cause> {
    let pool = &page.pool[..];
    let place = |pc: u64| usize::try_from(pc.wrapping_sub(base) / INSTRUCTION).unwrap_or(usize::MAX);
    let mut index = place(warp.group.pc);
    // Where the warp goes on, if that is not in the page.
    let mut away = None;
    let (mut ran, mut failed) = (0, None);
    while ran < most
        && let Some(quick) = page.quick.get(index)
    {
        if let Some(guard) = quick.guard {
            let lanes = warp.lanes(guard);
            if lanes == 0 && !matches!(quick.kind, Kind::Control) {
                (index, ran) = (index + 1, ran + 1);
                continue;
            }
            if lanes != ALL {
                break;
            }
        }
        let sources = [quick.a, quick.b, quick.c];
        let [a, b, c] = if quick.near {
            sources.map(|row| warp.near(row))
        } else {
            sources.map(|row| warp.row(pool, row))
        };
        let result = match quick.kind {
            Kind::None | Kind::Control => break,
            Kind::Branch(distance, conditions) => {
                let taken =
                    conditions.into_iter().fold(ALL, |taken, condition| taken & warp.lanes(condition));
                if taken != 0 && taken != ALL {
                    break;
                }
                (index, ran) = (index + 1, ran + 1);
                if taken == ALL {
                    let next = base.wrapping_add(index as u64 * INSTRUCTION);
                    let target = next.wrapping_add(distance.cast_unsigned());
                    index = place(target);
                    if index >= page.quick.len() || !target.is_multiple_of(INSTRUCTION) {
                        away = Some(target);
                        break;
                    }
                }
                continue;
            }
            Kind::Load | Kind::Store => {
                let Some(Ok((op, _))) = page.op(index) else { break };
                let done = match quick.kind {
                    Kind::Load => memory::load(warp, context, op, pool, ALL),
                    _ => memory::store(warp, context, op, pool, ALL),
                };
                ran += 1;
                if let Err(cause) = done {
                    failed = Some(cause);
                    break;
                }
                index += 1;
                continue;
            }
            Kind::Special(register) => match special::of_place(warp, context, register) {
                Some(row) => row,
                None => break,
            },
            Kind::Copy | Kind::Constants(false) => *b,
            Kind::Constants(true) => {
                let rows = [*b, *c];
                put_wide(warp, quick.d, &rows);
                (index, ran) = (index + 1, ran + 1);
                continue;
            }
            Kind::Sum([x, y, z], more) => each(|lane| {
                let sum = (a[lane] ^ x).wrapping_add(b[lane] ^ y).wrapping_add(c[lane] ^ z);
                sum.wrapping_add(more)
            }),
            Kind::Carried(how) => {
                let flips = [0, 1, 2].map(|bit| u32::from(how.flips >> bit & 1).wrapping_neg());
                let carries = how.from.map(|from| from.map(|from| warp.lanes(from)));
                let (sum, over) = carried([a, b, c], flips, carries, how.more.into());
                for (to, over) in how.to.into_iter().zip(over) {
                    warp.put_predicate(to, over, ALL);
                }
                sum
            }
            Kind::Scaled(how) => {
                let carries = how.from.map(|from| warp.lanes(from));
                let (sum, over) = scaled([a, b, c], how.shift.into(), how.high, carries);
                warp.put_predicate(how.to, over, ALL);
                sum
            }
            Kind::Multiply => each(|lane| a[lane].wrapping_mul(b[lane]).wrapping_add(c[lane])),
            Kind::MultiplyWide(signed) => {
                let above = warp.row(pool, quick.high);
                // Two loops, each of which the compiler makes of vectors.
                let sum = |lane: usize, signed: bool| {
                    words::product(a[lane], b[lane], signed).wrapping_add(pair(c[lane], above[lane]))
                };
                let rows = if signed {
                    each_wide(|lane| sum(lane, true))
                } else {
                    each_wide(|lane| sum(lane, false))
                };
                put_wide(warp, quick.d, &rows);
                (index, ran) = (index + 1, ran + 1);
                continue;
            }
            Kind::MultiplyHigh(signed) => {
                let above = warp.row(pool, quick.high);
                let sum = |lane: usize, signed: bool| {
                    let product = words::product(a[lane], b[lane], signed);
                    low(product.wrapping_add(pair(c[lane], above[lane])) >> 32)
                };
                if signed { each(|lane| sum(lane, true)) } else { each(|lane| sum(lane, false)) }
            }
            Kind::Logic(table) => logic(a, b, c, table),
            Kind::Shift(how) => shift(a, b, c, how),
            Kind::Add(signs, false) => plain::add([a, b], signs),
            Kind::Add(signs, true) => plain::add_flushed([a, b], signs),
            Kind::Scale(signs, false) => plain::multiply([a, b], signs),
            Kind::Scale(signs, true) => plain::multiply_flushed([a, b], signs),
            Kind::PlainFused => plain::fused([a, b, c], [0; 3]),
            Kind::Fused(signs, false) => plain::fused([a, b, c], signs),
            Kind::Fused(signs, true) => plain::fused_flushed([a, b, c], signs),
            Kind::Compare(accepted, signed, how, with, to) => {
                let found = compared(a, b, accepted, signed);
                let with = warp.lanes(with);
                warp.put_predicate(to[0], combine(found, with, how), ALL);
                warp.put_predicate(to[1], combine(!found, with, how), ALL);
                (index, ran) = (index + 1, ran + 1);
                continue;
            }
        };
        put(warp, quick.d, &result);
        (index, ran) = (index + 1, ran + 1);
    }
    warp.group.pc = away.unwrap_or(base.wrapping_add(index as u64 * INSTRUCTION));
    warp.count += u64::from(ran);
    match failed {
        Some(cause) => Err(cause),
        None => Ok(ran),
    }
}
