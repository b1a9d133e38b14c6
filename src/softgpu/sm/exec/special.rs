//! Special registers.

use gpuvmk_isa::Opcode as O;

use super::context::{Context, Done, put, put_wide};
use crate::fault::Cause;
use crate::op::{Detail, Op};
use crate::row::{LANES, Row, each, each_wide, low};
use crate::warp::Warp;

/// Numbers of special registers (contract, from two sources).
mod number {
    pub const LANE: u8 = 0x00;
    pub const THREAD: u8 = 0x20;
    pub const THREAD_X: u8 = 0x21;
    pub const THREAD_Z: u8 = 0x23;
    pub const CTA_X: u8 = 0x25;
    pub const CTA_Z: u8 = 0x27;
    pub const LOCAL_WINDOW_HIGH: u8 = 0x2e;
    pub const SHARED_WINDOW_HIGH: u8 = 0x2f;
    pub const SHARED_WINDOW_LOW: u8 = 0x30;
    pub const LOCAL_WINDOW_LOW: u8 = 0x34;
    pub const EQUAL: u8 = 0x38;
    pub const LESS: u8 = 0x39;
    pub const LESS_OR_EQUAL: u8 = 0x3a;
    pub const GREATER: u8 = 0x3b;
    pub const GREATER_OR_EQUAL: u8 = 0x3c;
    pub const CLOCK_LOW: u8 = 0x50;
    pub const CLOCK_HIGH: u8 = 0x51;
    pub const TIMER_LOW: u8 = 0x52;
    pub const TIMER_HIGH: u8 = 0x53;
    pub const CLUSTER_CTA: u8 = 0x88;
    pub const ZERO: u8 = 0xff;
}

/// Places of lanes' threads in their CTA, along one of width, height and depth.
#[inline(always)]
fn thread(warp: &Warp, block: [u32; 3], axis: u8) -> Row {
    let first = warp.index * 32;
    let [width, height, _] = block.map(|size| size.max(1));
    let x = first % width;
    if width - x >= 32 {
        // All in one line.
        return match axis {
            0 => each(|lane| x + u32::try_from(lane).unwrap_or(0)),
            1 => [first / width % height; LANES],
            _ => [first / width / height; LANES],
        };
    }
    threads(first, [width, height])[usize::from(axis % 3)]
}

/// Places of 32 threads, in lines of a width and planes of a height.
fn threads(first: u32, [width, height]: [u32; 2]) -> [Row; 3] {
    let [mut x, mut y, mut z] = [first % width, first / width % height, first / width / height];
    let mut places = [[0; LANES]; 3];
    for lane in 0..LANES {
        for (row, place) in places.iter_mut().zip([x, y, z]) {
            row[lane] = place;
        }
        x += 1;
        if x == width {
            (x, y) = (0, y + 1);
        }
        if y == height {
            (y, z) = (0, z + 1);
        }
    }
    places
}

/// A register that tells which thread it is, if it is one of these.
#[inline(always)]
pub(super) fn of_place(warp: &Warp, context: &Context<'_>, register: u8) -> Option<Row> {
    match register {
        number::LANE => Some(each(|lane| u32::try_from(lane).unwrap_or(0))),
        number::THREAD_X..=number::THREAD_Z => {
            Some(thread(warp, context.launch.block, register - number::THREAD_X))
        }
        number::CTA_X..=number::CTA_Z => Some([context.place[usize::from(register - number::CTA_X)]; LANES]),
        _ => None,
    }
}

#[inline(always)]
pub(super) fn run(warp: &mut Warp, context: &mut Context<'_>, op: &Op, mask: u32) -> Done {
    let Detail::Special(register) = op.detail else { return Ok(()) };
    let clock = warp.count;
    if matches!(op.opcode, O::Cs2r | O::Cs2ur) && matches!(register, number::CLOCK_LOW | number::TIMER_LOW) {
        let time = if register == number::CLOCK_LOW { clock } else { context.view.timer() };
        return put_wide(warp, op.d, &each_wide(|_| time), mask);
    }
    let block = context.launch.block;
    let of_lane = |of: fn(u32) -> u32| each(|lane| of(1 << lane));
    let same = |word: u32| -> Row { [word; LANES] };
    let result = match register {
        number::THREAD => {
            let [x, y, z] = [0, 1, 2].map(|axis| thread(warp, block, axis));
            each(|lane| x[lane] | y[lane] << 16 | z[lane] << 26)
        }
        number::LOCAL_WINDOW_LOW => same(low(context.launch.local_window)),
        number::LOCAL_WINDOW_HIGH => same(low(context.launch.local_window >> 32)),
        number::SHARED_WINDOW_LOW => same(low(context.launch.shared_window)),
        number::SHARED_WINDOW_HIGH => same(low(context.launch.shared_window >> 32)),
        number::EQUAL => of_lane(|bit| bit),
        number::LESS => of_lane(|bit| bit - 1),
        number::LESS_OR_EQUAL => of_lane(|bit| bit | (bit - 1)),
        number::GREATER => of_lane(|bit| !(bit | (bit - 1))),
        number::GREATER_OR_EQUAL => of_lane(|bit| !(bit - 1)),
        number::CLOCK_LOW => same(low(clock)),
        number::CLOCK_HIGH => same(low(clock >> 32)),
        number::TIMER_LOW => same(low(context.view.timer())),
        number::TIMER_HIGH => same(low(context.view.timer() >> 32)),
        number::CLUSTER_CTA | number::ZERO => same(0),
        _ => of_place(warp, context, register).ok_or(Cause::NotExecuted(op.opcode))?,
    };
    if op.opcode == O::Cs2r && register == number::ZERO {
        return put_wide(warp, op.d, &[result; 2], mask);
    }
    put(warp, op.d, &result, mask)
}
