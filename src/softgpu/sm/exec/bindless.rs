//! Constants of buffers whose handles are in registers. They are read where they are wanted.

use gpuvmk_isa::{Bits, Word};

use super::context::{Context, Done, put};
use super::memory::MISALIGNED;
use crate::bindless::{BOUND, Bindless};
use crate::fault::Cause;
use crate::lower::following;
use crate::op::{Detail, Op, POOL, Unit};
use crate::row::{Kept, LANES, Lanes, Row, ZERO, each, low, pair};
use crate::warp::Warp;

/// Fields of a handle, in units of 16 bytes (Mesa's `nvk_bindless_cbuf`).
const ADDRESS: Bits = Bits::new(0, 45);
const SIZE: Bits = Bits::new(45, 19);
const UNIT_SHIFT: u32 = 4;

/// A buffer.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    address: u64,
    size: u64,
}

impl Buffer {
    fn of(handle: u64) -> Self {
        let field = |bits| Word(handle.into()).get(bits) << UNIT_SHIFT;
        Self { address: field(ADDRESS), size: field(SIZE) }
    }

    /// The word at an offset, which is a multiple of 4; 0 beyond the end, as in banks.
    fn word(self, context: &mut Context<'_>, offset: u32) -> Result<u32, Cause> {
        let mut word = 0;
        if u64::from(offset) + 4 <= self.size {
            let at = self.address.wrapping_add(offset.into());
            context.view.load(at, std::slice::from_mut(&mut word))?;
        }
        Ok(word)
    }
}

/// An operation with rows for its constants, which is to be executed then; none if it was a load, which is
/// done. `mask` has a lane.
pub(super) fn prepare(
    warp: &mut Warp,
    context: &mut Context<'_>,
    found: &Bindless,
    pool: &[Kept],
    mask: u32,
) -> Result<Option<(Op, Vec<Kept>)>, Cause> {
    let lane = Warp::first_lane(mask);
    let halves = [found.handle, following(found.handle)].map(|row| warp.row(pool, row)[lane]);
    let buffer = Buffer::of(pair(halves[0], halves[1]));
    let mut op = found.op;
    if let Detail::Constant(_, offset, unit) = op.detail {
        load(warp, context, (&op, buffer), pool, mask, (offset.cast_unsigned(), unit))?;
        return Ok(None);
    }
    let mut rows = vec![Kept([buffer.word(context, found.offset)?; LANES])];
    let wide = [op.a, op.b, op.c].iter().any(|source| source.high == BOUND + 1);
    let high = if wide { [buffer.word(context, found.offset.wrapping_add(4))?; LANES] } else { ZERO };
    rows.push(Kept(high));
    for source in [&mut op.a, &mut op.b, &mut op.c] {
        for row in [&mut source.row, &mut source.high] {
            if *row >= POOL {
                rows.push(Kept(*warp.row(pool, *row)));
                *row = POOL + u16::try_from(rows.len() - 1).unwrap_or(0);
            } else if *row >= BOUND {
                *row += POOL - BOUND;
            }
        }
    }
    Ok(Some((op, rows)))
}

/// LDC and ULDC.
fn load(
    warp: &mut Warp,
    context: &mut Context<'_>,
    (op, buffer): (&Op, Buffer),
    pool: &[Kept],
    mask: u32,
    (offset, unit): (u32, Unit),
) -> Done {
    let base = warp.row(pool, op.a.row);
    let offsets = each(|lane| base[lane].wrapping_add(offset));
    let words = |context: &mut Context<'_>, more: u32| -> Result<Row, Cause> {
        let (mut row, mut last) = (ZERO, None);
        for lane in Lanes(mask) {
            let at = (offsets[lane] & !3).wrapping_add(more);
            // Most lanes want the same word.
            let word = match last {
                Some((known, word)) if known == at => word,
                _ => buffer.word(context, at)?,
            };
            last = Some((at, word));
            row[lane] = word;
        }
        Ok(row)
    };
    match unit {
        Unit::Small(bytes, signed) => {
            let found = words(context, 0)?;
            let value = each(|lane| {
                let word = low(u64::from(found[lane]) >> (8 * (offsets[lane] % 4)));
                crate::numerics::integer::extend(word, 8 * u32::from(bytes), signed, false)
            });
            put(warp, op.d, &value, mask)
        }
        Unit::Words(count) => {
            if Lanes(mask).any(|lane| !offsets[lane].is_multiple_of(4)) {
                return Err(MISALIGNED);
            }
            let mut row = op.d;
            for index in 0..u32::from(count) {
                let found = words(context, 4 * index)?;
                put(warp, row, &found, mask)?;
                row = following(row);
            }
            Ok(())
        }
    }
}
