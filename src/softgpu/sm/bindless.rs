//! Constants of buffers whose handles are in pairs of uniform registers: what an instruction names of them.

use crate::op::{Op, POOL};

/// The row of such a word, as a source: no warp has so many registers. The word behind it is in the next row.
pub(crate) const BOUND: u16 = POOL - 2;

/// An operation with a word of such a buffer among its sources, or that loads words of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bindless {
    pub op: Op,
    /// Row of the handle's lower half.
    pub handle: u16,
    /// Of a source, in bytes.
    pub offset: u32,
}
