//! NVIDIA's own driver, from what it was heard to say.

mod dialogue;
mod facts;
mod facts_535;
mod kernel;
mod objects;
mod replay;
