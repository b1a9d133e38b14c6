//! The controls that all versions of NVIDIA's own modules have in the same way, and what their answers are
//! made of where they differ in lengths or numbers.

pub mod channels;
pub mod copies;
pub mod devices;
pub mod graphics;
pub mod identity;
pub mod links;
pub mod memory;
pub mod monitoring;
pub mod unnamed;
