//! A page of a table, with its content of the last synchronisation.

use super::Version;
use super::budget::{Budget, PIECE, WalkRefusal};
use super::format::Shape;

/// The contents of a piece that holds nothing.
pub(super) static EMPTY: [u8; PIECE] = [0; PIECE];

/// The last known state of a piece.
#[derive(Debug, Default)]
pub(super) struct Piece {
    /// Its contents, unless they are all 0.
    pub content: Option<Box<[u8]>>,
    /// Its version when it was read, where the memory has versions.
    pub version: Option<Version>,
}

impl Piece {
    /// Remembers the first `length` bytes of `buffer`, and leaves a buffer there.
    pub fn keep(
        &mut self,
        budget: &mut Budget,
        buffer: &mut Box<[u8]>,
        length: usize,
    ) -> Result<(), WalkRefusal> {
        let fresh = buffer.get(..length).unwrap_or_default();
        if EMPTY.get(..length) == Some(fresh) {
            self.forget(budget);
            return Ok(());
        }
        match &mut self.content {
            Some(content) if content.len() == buffer.len() => std::mem::swap(content, buffer),
            Some(content) => content.copy_from_slice(fresh),
            None => {
                budget.take_bytes(length)?;
                let whole = length == buffer.len();
                let content =
                    if whole { std::mem::replace(buffer, budget.take_place()) } else { fresh.into() };
                self.content = Some(content);
            }
        }
        Ok(())
    }

    /// Drops the contents.
    pub fn forget(&mut self, budget: &mut Budget) {
        if let Some(content) = self.content.take() {
            budget.give_bytes(content.len());
            budget.give_place(content);
        }
    }
}

/// Pieces of a table.
pub(super) fn pieces(shape: Shape) -> usize {
    bytes(shape).div_ceil(PIECE)
}

/// Bytes of a piece.
pub(super) fn piece_length(shape: Shape, piece: usize) -> usize {
    bytes(shape).saturating_sub(piece.saturating_mul(PIECE)).min(PIECE)
}

/// Number in the table of the first entry of a piece.
pub(super) fn first_entry(shape: Shape, piece: usize) -> u32 {
    u32::try_from(piece.saturating_mul(PIECE / shape.entry_size.max(1))).unwrap_or(u32::MAX)
}

fn bytes(shape: Shape) -> usize {
    shape.entry_size.saturating_mul(usize::try_from(shape.entries).unwrap_or(usize::MAX))
}
