//! The virtual GSP: the firmware that a driver loads, boots and talks to, played here.
//!
//! [`model`] is what it does, over any [`gpuvmk_backend::GspBackend`]. [`abi`] is how a version of the
//! firmware lays that out in messages, [`hal`] what chips do differently. docs/controls.md has what is
//! answered.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod abi;
pub mod document;
pub mod hal;
pub mod model;

pub use model::*;
