//! What NVIDIA's own kernel modules say in the same way in all their versions that are known, and nouveau
//! does not say, or says in another way.
//!
//! They differ from nouveau in more than layouts. An allocation's parameters lie behind the length of its
//! message, and its result is the message's. The module makes clients of its own in the range where
//! firmware's own client has its handle elsewhere, has groups of channels and objects that two clients know,
//! and says of page tables in messages of their own.
//!
//! Compared in the headers of 535.261.03 and 550.163.01.

#![allow(
    non_camel_case_types,
    non_snake_case,
    missing_docs,
    reason = "structs, fields and constants keep the names of NVIDIA's headers, which are their documentation"
)]

pub mod control;
pub mod controls;
pub mod events;
pub mod functions;
pub(super) mod numbers;
pub mod object;
pub mod static_info;
pub mod system_info;

/// Handle of firmware's own client. The module makes its own from 0xc1d00000 and from 0xc1e00000 on.
pub const INTERNAL_CLIENT: u32 = 0xc1f0_0004;
