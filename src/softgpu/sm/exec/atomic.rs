//! Atomics: lanes one after the other, from the lowest on.

use gpuvmk_isa::Opcode as O;
use gpuvmk_isa::modifier::{AtomicOp, AtomicType};

use super::context::{Context, Done, put};
use super::memory::{MISALIGNED, OUT_OF_RANGE, addresses, resolve};
use crate::fault::{Cause, Exception};
use crate::lower::following;
use crate::memory::Width;
use crate::numerics::format::Format;
use crate::numerics::half::{self, Mode, Operand};
use crate::numerics::rounding::Rounding;
use crate::numerics::{double, float};
use crate::op::{Detail, Op, Space, TRUE};
use crate::row::{Kept, Lanes, ZERO, low, mask as lanes, pair};
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
        AtomicType::F32FtzRn
        | AtomicType::F32x2FtzRn
        | AtomicType::F32x4FtzRn
        | AtomicType::F32Rn
        | AtomicType::F32x2Rn
        | AtomicType::F32x4Rn => {
            let plain = matches!(kind, AtomicType::F32Rn | AtomicType::F32x2Rn | AtomicType::F32x4Rn);
            let mode = float::Mode { flush: !plain, ..float::Mode::default() };
            u64::from(match op {
                AtomicOp::Min => float::pick(words.0, words.1, false, false, false),
                AtomicOp::Max => float::pick(words.0, words.1, true, false, false),
                AtomicOp::Exch => words.1,
                _ => float::add(words.0, words.1, mode),
            })
        }
        AtomicType::F64Rn => match op {
            AtomicOp::Exch => data,
            // Unlike in DADD, what is no number stays as it is.
            _ if f64::from_bits(data).is_nan() => data,
            _ if f64::from_bits(old).is_nan() => old,
            _ => double::add(old, data, Rounding::Nearest),
        },
        AtomicType::F16x2Rn
        | AtomicType::Bf16x2Rn
        | AtomicType::F16x4Rn
        | AtomicType::F16x8Rn
        | AtomicType::Bf16x4Rn
        | AtomicType::Bf16x8Rn => {
            let halves = matches!(kind, AtomicType::F16x2Rn | AtomicType::F16x4Rn | AtomicType::F16x8Rn);
            let format = if halves { Format::HALF } else { Format::BFLOAT };
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

/// Values of a kind that stand beside each other: each of them is changed as one step.
const fn values(kind: AtomicType) -> u16 {
    match kind {
        AtomicType::F16x4Rn | AtomicType::Bf16x4Rn | AtomicType::F32x2FtzRn | AtomicType::F32x2Rn => 2,
        AtomicType::F16x8Rn | AtomicType::Bf16x8Rn | AtomicType::F32x4FtzRn | AtomicType::F32x4Rn => 4,
        _ => 1,
    }
}

/// True where a generic address in shared memory is no obstacle: integers of 32 bits, and of 64 bits
/// additions and swaps (as an H200 has it).
const fn is_shared_too(swaps: bool, what: AtomicOp, kind: AtomicType) -> bool {
    match kind {
        AtomicType::U32 | AtomicType::S32 => true,
        AtomicType::U64 => swaps || matches!(what, AtomicOp::Add | AtomicOp::Exch),
        _ => false,
    }
}

pub(super) fn run(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Atomic(place, what, kind, told) = op.detail else { return Ok(()) };
    let addresses = addresses(warp, op, place, pool);
    let swaps = matches!(op.opcode, O::AtomgCas | O::AtomCas | O::AtomsCas);
    let mut done = mask;
    if op.to[0] != TRUE {
        done = lanes(|lane| {
            let (space, _) = resolve(context, place.space, addresses[lane]);
            space == Space::Global || space == Space::Shared && is_shared_too(swaps, what, kind)
        }) & mask;
        warp.put_predicate(op.to[0], done, mask);
    }
    let width = width(kind);
    let wide = width == Width::Double;
    let values = values(kind);
    let mut rows = [ZERO; 4];
    for lane in Lanes(done) {
        if !addresses[lane].is_multiple_of(u64::from(values) * if wide { 8 } else { 4 }) {
            return Err(MISALIGNED);
        }
        for value in 0..values {
            let word = |row: u16| {
                let row = (0..value).fold(row, |row, _| following(row));
                let high = if wide { warp.row(pool, following(row))[lane] } else { 0 };
                pair(warp.row(pool, row)[lane], high)
            };
            let (data, with) = (word(op.b.row), word(op.c.row));
            let mut change = |old: u64| match swaps {
                true if old == data => with,
                true => old,
                false => changed(what, kind, old, data),
            };
            let at = addresses[lane] + u64::from(value) * 4;
            let old = update(context, place.space, at, width, &mut change)?;
            let result = if swaps && told { u64::from(old == data) } else { old };
            rows[usize::from(value)][lane] = low(result);
            if wide {
                rows[1][lane] = low(result >> 32);
            }
        }
    }
    let mut to = op.d;
    for row in rows.iter().take(usize::from(values) + usize::from(wide)) {
        put(warp, to, row, done)?;
        to = following(to);
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
