//! A part of a picture that changes step by step: all of a small one, or what a place of it depends on.

use super::Size;
use crate::reference::samples;

/// Places of a large picture that are looked at.
const PLACES: usize = 12;

/// Rows and columns of a square picture. What lies at an edge that is not the picture's is wrong after a
/// step, and one more row of it after each further step.
#[derive(Clone, Debug)]
pub(super) struct Window {
    side: usize,
    rows: (usize, usize),
    columns: (usize, usize),
    values: Vec<f32>,
}

impl Window {
    /// The rows `rows.0..rows.1`, and columns in the same way.
    fn of(side: usize, rows: (usize, usize), columns: (usize, usize)) -> Self {
        let count = (rows.1 - rows.0) * (columns.1 - columns.0);
        Self { side, rows, columns, values: vec![0.0; count] }
    }

    /// What has to be looked at, with the places whose results are compared: these are right after steps that
    /// look `reach` places far in all. Of a large picture, places are in its first `height` rows.
    pub(super) fn all(
        size: Size,
        (side, height): (usize, usize),
        reach: usize,
    ) -> Vec<(Self, Vec<(usize, usize)>)> {
        if size == Size::Small {
            let places = (0..side * side).map(|at| (at / side, at % side)).collect();
            return vec![(Self::of(side, (0, side), (0, side)), places)];
        }
        let around = |at: usize| (at.saturating_sub(reach), (at + reach + 1).min(side));
        samples(PLACES, side * height, 17)
            .map(|at| (at / side, at % side))
            .map(|(y, x)| (Self::of(side, around(y), around(x)), vec![(y, x)]))
            .collect()
    }

    /// The same places, each with what this gives for its row and column.
    pub(super) fn made(&self, value: impl Fn(usize, usize) -> f32) -> Self {
        let columns = self.columns.0..self.columns.1;
        let rows = self.rows.0..self.rows.1;
        let values =
            rows.flat_map(|y| columns.clone().map(move |x| (y, x))).map(|(y, x)| value(y, x)).collect();
        Self { values, ..*self }
    }

    fn index(&self, y: usize, x: usize) -> Option<usize> {
        let (row, column) = (y.checked_sub(self.rows.0)?, x.checked_sub(self.columns.0)?);
        let width = self.columns.1 - self.columns.0;
        (y < self.rows.1 && column < width).then_some(row * width + column)
    }

    /// The value at a place; 1 where it has none.
    pub(super) fn get(&self, y: usize, x: usize) -> f32 {
        self.index(y, x).and_then(|index| self.values.get(index)).copied().unwrap_or(1.0)
    }

    /// Those to the north, south, west and east; the place's own beyond the picture's edge.
    pub(super) fn beside(&self, y: usize, x: usize) -> [f32; 4] {
        let last = self.side - 1;
        [
            self.get(y.saturating_sub(1), x),
            self.get((y + 1).min(last), x),
            self.get(y, x.saturating_sub(1)),
            self.get(y, (x + 1).min(last)),
        ]
    }
}
