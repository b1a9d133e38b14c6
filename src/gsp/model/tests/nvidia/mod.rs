//! NVIDIA's own driver, from what it was heard to say.

mod dialogue;
mod facts;
mod kernel;
mod objects;
mod replay;
