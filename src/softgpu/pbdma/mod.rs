//! PBDMAs, the host unit's threads: each takes channels from the FIFO's tables and executes their command
//! streams.
//!
//! [`thread`] is a PBDMA's life, [`execution`] a channel's stay on it, [`loaded`] the channel as it is
//! loaded, [`ending`] why it leaves. Ring and segments are parsed in [`pushbuffer`]; the methods that are the
//! host unit's own are in [`host`]. [`shared`] is what the threads have in common with the register face.

pub(crate) mod ending;
mod execution;
pub(crate) mod host;
pub(crate) mod loaded;
mod pushbuffer;
pub(crate) mod shared;
pub(crate) mod thread;
