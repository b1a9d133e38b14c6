//! The table of operations, by group.

mod control;
mod convert;
mod cross;
mod double;
mod float;
mod half;
mod integer;
mod memory;
mod tensor;
mod uniform;

use crate::row::Row;

/// Every row. Of rows with one code the first that accounts for a word's bits is the word's.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    [
        integer::ROWS,
        float::ROWS,
        half::ROWS,
        double::ROWS,
        convert::ROWS,
        memory::ROWS,
        control::ROWS,
        uniform::ROWS,
        tensor::ROWS,
        cross::ROWS,
    ]
    .into_iter()
    .flatten()
}
