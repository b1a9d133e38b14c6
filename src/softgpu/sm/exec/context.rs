//! What instructions run in, and how they end.

use crate::cta::{Arrival, Shared};
use crate::fault::{Cause, Exception};
use crate::launch::Launch;
use crate::memory::View;
use crate::program::Program;
use crate::row::Row;
use crate::warp::Warp;

/// Bytes of an instruction.
pub(super) const INSTRUCTION: u64 = 16;

/// What a warp runs in.
pub(crate) struct Context<'a> {
    pub launch: &'a Launch,
    pub program: &'a Program,
    pub view: &'a mut dyn View,
    pub shared: &'a mut Shared,
    /// Place of the CTA in the grid.
    pub place: [u32; 3],
    /// Part of local memory of the warp.
    pub slot: u64,
}

/// How a warp's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// By the number of instructions.
    Quantum,
    /// No lane is left.
    Ended,
    /// All lanes wait.
    Blocked,
    /// A group is at a barrier of the CTA.
    Arrived(Arrival),
}

/// What comes after an instruction.
pub(super) enum Flow {
    /// The next one.
    Next,
    /// What the warp's group says.
    Set,
    /// A barrier of the CTA.
    Arrived(Arrival),
}

pub(super) type Done = Result<(), Cause>;

/// A register that is behind the last one.
const NO_REGISTER: Cause = Cause::Exception(Exception::RegisterOutOfRange);

/// Writes a result.
#[inline(always)]
pub(super) fn put(warp: &mut Warp, row: u16, value: &Row, mask: u32) -> Done {
    if warp.put(row, value, mask) { Ok(()) } else { Err(NO_REGISTER) }
}

/// Writes a result of two words.
#[inline(always)]
pub(super) fn put_wide(warp: &mut Warp, row: u16, values: &[Row; 2], mask: u32) -> Done {
    put(warp, row, &values[0], mask)?;
    put(warp, crate::lower::following(row), &values[1], mask)
}
