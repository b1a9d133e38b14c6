//! What instructions compute, as functions of words: bit for bit as an H100 does.
//!
//! Numbers marked "measured" were measured on an H100; what is not known is said where it is decided.

pub mod convert;
pub mod double;
pub mod exact;
pub mod float;
pub mod format;
pub mod half;
pub mod integer;
pub mod mufu;
mod mufu_measured;
mod mufu_tables;
mod quadratic;
pub mod rounding;
pub mod tensor;

pub use format::Format;
pub use rounding::Rounding;
