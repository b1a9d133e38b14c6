//! Formats of others.

pub mod chrome;
pub mod csv;
pub mod json_lines;
pub mod mmiotrace;
