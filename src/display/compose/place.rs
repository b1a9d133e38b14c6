//! Which part of a window or cursor is seen.

use std::ops::Range;

use crate::mode::Size;
use crate::scanout::Point;

/// What is seen of a rectangle: never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Columns of the picture.
    pub(super) columns: Range<u16>,
    /// Lines of the picture.
    pub(super) lines: Range<u16>,
    /// Column of the surface that comes to the first column.
    pub(super) first_column: u16,
    /// Line of the surface that comes to the first line.
    pub(super) first_line: u16,
}

/// What is seen along one direction: a range of the picture, and where in the surface it begins.
fn axis(picture: u16, to: i32, from: i32, shown: u16, surface: u16) -> Option<(Range<u16>, u16)> {
    let (to, from) = (i64::from(to), i64::from(from));
    // As distances from the window's beginning: inside the window, the surface and the picture.
    let first = 0.max(-from).max(-to);
    let end = i64::from(shown).min(i64::from(surface) - from).min(i64::from(picture) - to);
    let seen = u16::try_from(to + first).ok()?..u16::try_from(to + end).ok()?;
    (first < end).then_some((seen, u16::try_from(from + first).ok()?))
}

impl Seen {
    /// What is seen in a picture where pixels `from` on of a surface are shown at `to`.
    pub(super) fn of(picture: Size, to: Point, from: Point, shown: Size, surface: Size) -> Option<Self> {
        let (columns, first_column) = axis(picture.width(), to.x, from.x, shown.width(), surface.width())?;
        let (lines, first_line) = axis(picture.height(), to.y, from.y, shown.height(), surface.height())?;
        Some(Self { columns, lines, first_column, first_line })
    }

    /// The same, of columns as places in a slice.
    pub(super) fn span(&self) -> Range<usize> {
        usize::from(self.columns.start)..usize::from(self.columns.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_pixel_is_seen_where_it_lies_in_all_three(
            picture in 0_u16..12, shown in 0_u16..12, surface in 0_u16..12, to in -9_i32..12, from in -9_i32..12,
        ) {
            let inside = |at: i32, side: u16| (0..i32::from(side)).contains(&at);
            let expected: Vec<(i32, i32)> = (0..i32::from(picture))
                .map(|x| (x, x - to + from))
                .filter(|(x, column)| inside(x - to, shown) && inside(*column, surface))
                .collect();
            let found: Vec<(i32, i32)> = axis(picture, to, from, shown, surface)
                .map(|(columns, first)| columns.zip(first..).map(|(x, at)| (x.into(), at.into())).collect())
                .unwrap_or_default();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn wild_places_are_no_places(picture: u16, to: i32, from: i32, shown: u16, surface: u16) {
            if let Some((seen, first)) = axis(picture, to, from, shown, surface) {
                prop_assert!(seen.start < seen.end && seen.end <= picture && first < surface);
            }
        }
    }
}
