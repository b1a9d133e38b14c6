//! How a counter is declared: once, as a field of a struct, with its kind, its unit, its name among metrics
//! and its help.
//!
//! [`counters!`] makes the struct and has it [`Counted`]. A struct may have other counted structs as parts,
//! so that counters form a tree. [`Counted::walk`] goes through that tree, with values or without them:
//! metrics, `gpuvmk top` and the document of metrics are made from such walks, and know no counter by
//! themselves.

mod declare;
mod kept;
mod walk;

pub use declare::{Counter, Export, Kind, Unit};
pub use kept::Kept;
pub use walk::{Counted, Figure, Group, Named, Place, Visit, walk_group};
