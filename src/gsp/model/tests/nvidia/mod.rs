//! NVIDIA's own driver, from what it was heard to say.

mod dialogue;
mod facts;
mod objects;
mod replay;
