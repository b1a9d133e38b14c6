//! The controls that are the same in all versions: what nouveau of Linux 6.12, 7.2 and 7.3 sends.
//!
//! One that is in no table is answered NV_ERR_NOT_SUPPORTED, as real firmware answers one that its GPU does
//! not have.

pub mod channels;
pub mod display;
pub mod engines;
pub mod heads;
pub mod memory;
