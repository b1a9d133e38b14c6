//! Atomics: lanes one after the other, from the lowest on.

use gpuvmk_isa::Opcode as O;
use gpuvmk_isa::modifier::{AtomicOp, AtomicType};

use super::context::{Context, Done, put};
use super::memory::{MISALIGNED, OUT_OF_RANGE, addresses, resolve};
use crate::fault::{Cause, Exception};
use crate::memory::Width;
use crate::numerics::format::Format;
use crate::numerics::half::{self, Mode, Operand};
use crate::numerics::rounding::Rounding;
use crate::numerics::{double, float};
use crate::op::{Detail, Op, Space};
use crate::row::{Lanes, Row, ZERO, low, pair};
use crate::warp::Warp;

/// The new value of an atomic.
fn changed(op: AtomicOp, kind: AtomicType, old: u64, data: u64) -> u64 {
    let words = (low(old), low(data));
    match kind {
        AtomicType::U64 | AtomicType::S64 => {
            let signed = kind == AtomicType::S64;
            let flip = u64::from(signed) << 63;
            match op {
                AtomicOp::Min => ((old ^ flip).min(data ^ flip)) ^ flip,
                AtomicOp::Max => ((old ^ flip).max(data ^ flip)) ^ flip,
                AtomicOp::Inc => {
                    if old >= data {
                        0
                    } else {
                        old + 1
                    }
                }
                AtomicOp::Dec => {
                    if old == 0 || old > data {
                        data
                    } else {
                        old - 1
                    }
                }
                _ => plain(op, old, data),
            }
        }
        AtomicType::F32FtzRn => {
            let mode = float::Mode { flush: true, ..float::Mode::default() };
            u64::from(match op {
                AtomicOp::Min => float::pick(words.0, words.1, false, false, false),
                AtomicOp::Max => float::pick(words.0, words.1, true, false, false),
                AtomicOp::Exch => words.1,
                _ => float::add(words.0, words.1, mode),
            })
        }
        AtomicType::F64Rn => match op {
            AtomicOp::Exch => data,
            _ => double::add(old, data, Rounding::Nearest),
        },
        AtomicType::F16x2Rn | AtomicType::Bf16x2Rn => {
            let format = if kind == AtomicType::F16x2Rn { Format::HALF } else { Format::BFLOAT };
            let mode = Mode::plain(format);
            let [a, b] = [words.0, words.1].map(|word| mode.operand(word, Operand::default()));
            u64::from(match op {
                AtomicOp::Min => half::pick(a, b, false, false, mode),
                AtomicOp::Max => half::pick(a, b, true, false, mode),
                AtomicOp::Exch => words.1,
                _ => half::add(a, b, mode),
            })
        }
        AtomicType::U32 | AtomicType::S32 => {
            let flip = u32::from(kind == AtomicType::S32) << 31;
            let (old, data) = words;
            u64::from(match op {
                AtomicOp::Min => ((old ^ flip).min(data ^ flip)) ^ flip,
                AtomicOp::Max => ((old ^ flip).max(data ^ flip)) ^ flip,
                AtomicOp::Inc => {
                    if old >= data {
                        0
                    } else {
                        old + 1
                    }
                }
                AtomicOp::Dec => {
                    if old == 0 || old > data {
                        data
                    } else {
                        old - 1
                    }
                }
                _ => low(plain(op, old.into(), data.into())),
            })
        }
    }
}

/// What does not depend on the width.
const fn plain(op: AtomicOp, old: u64, data: u64) -> u64 {
    match op {
        AtomicOp::And => old & data,
        AtomicOp::Or => old | data,
        AtomicOp::Xor => old ^ data,
        AtomicOp::Exch => data,
        _ => old.wrapping_add(data),
    }
}

const fn width(kind: AtomicType) -> Width {
    match kind {
        AtomicType::U64 | AtomicType::S64 | AtomicType::F64Rn => Width::Double,
        _ => Width::Word,
    }
}

pub(super) fn run(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Row], mask: u32) -> Done {
    let Detail::Atomic(place, what, kind, told) = op.detail else { return Ok(()) };
    let addresses = addresses(warp, op, place, pool);
    let swaps = matches!(op.opcode, O::AtomgCas | O::AtomCas | O::AtomsCas);
    let width = width(kind);
    let wide = width == Width::Double;
    let word = |row: u16, lane: usize| {
        let high = if wide { warp.row(pool, crate::lower::following(row))[lane] } else { 0 };
        pair(warp.row(pool, row)[lane], high)
    };
    let mut rows = [ZERO; 2];
    for lane in Lanes(mask) {
        let data = word(op.b.row, lane);
        let with = word(op.c.row, lane);
        let mut change = |old: u64| match swaps {
            true if old == data => with,
            true => old,
            false => changed(what, kind, old, data),
        };
        let old = update(context, place.space, addresses[lane], width, &mut change)?;
        let result = if swaps && told { u64::from(old == data) } else { old };
        rows[0][lane] = low(result);
        rows[1][lane] = low(result >> 32);
    }
    put(warp, op.d, &rows[0], mask)?;
    if wide {
        put(warp, crate::lower::following(op.d), &rows[1], mask)?;
    }
    Ok(())
}

fn update(
    context: &mut Context<'_>,
    space: Space,
    address: u64,
    width: Width,
    change: &mut dyn FnMut(u64) -> u64,
) -> Result<u64, Cause> {
    let bytes = if width == Width::Double { 8 } else { 4 };
    if !address.is_multiple_of(bytes) {
        return Err(MISALIGNED);
    }
    match resolve(context, space, address) {
        (Space::Shared, address) => {
            let first = usize::try_from(address / 4).unwrap_or(usize::MAX);
            let words = context.shared.words.get_mut(first..).ok_or(OUT_OF_RANGE)?;
            match (width, words) {
                (Width::Word, [word, ..]) => {
                    let old = u64::from(*word);
                    *word = low(change(old));
                    Ok(old)
                }
                (Width::Double, [first, second, ..]) => {
                    let old = pair(*first, *second);
                    let new = change(old);
                    (*first, *second) = (low(new), low(new >> 32));
                    Ok(old)
                }
                _ => Err(OUT_OF_RANGE),
            }
        }
        (Space::Local, _) => Err(Cause::Exception(Exception::InvalidAddressSpace)),
        (_, address) => Ok(context.view.update(address, width, change)?),
    }
}
