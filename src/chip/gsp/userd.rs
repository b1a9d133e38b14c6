//! The user-visible page of a channel (USERD), where driver and host unit tell each other how far they are in
//! the command ring. It is laid out as on Fermi, but smaller.
//!
//! Source: open-gpu-doc `clc86f.h` (Nvc86fControl).

pub use crate::gf100::ramin::{USERD_GP_GET, USERD_GP_PUT, USERD_REFERENCE};

/// Bytes of a channel's USERD, of which many lie in a page.
pub const USERD_SIZE: u64 = 0x200;
