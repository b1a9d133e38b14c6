//! PBDMAs, the host unit's threads, and the engines' own: a PBDMA takes channels from the FIFO's tables and
//! executes their command streams; an engine goes on with what takes long.
//!
//! On a GPU, the host unit hands a method to an engine and does not execute it. While the engine works, the
//! host unit waits, or switches to another channel of its runlist. Here, a method that ends within a tenth of
//! a timeslice is executed by the PBDMA's thread: to hand it over would cost more than it gains. What takes
//! longer the PBDMA begins; then the channel leaves it, and the engine's thread does the rest. The PBDMA
//! takes other channels meanwhile: their host methods, and their work for other engines.
//!
//! [`thread`] is a PBDMA's life, [`execution`] a channel's stay on it, [`loaded`] the channel as it is
//! loaded. [`engine_thread`] is an engine's life, [`long_work`] what it is given. [`ending`] says why a
//! channel leaves either, [`leaving`] how. Ring and segments are parsed in [`pushbuffer`]; the methods that
//! are the host unit's own are in [`host`]. [`shared`] is what the threads have in common with the register
//! face.

pub(crate) mod ending;
pub(crate) mod engine_thread;
mod execution;
pub(crate) mod host;
mod leaving;
pub(crate) mod loaded;
mod long_work;
mod pushbuffer;
pub(crate) mod shared;
pub(crate) mod thread;
