//! Kernels of our own, run on memory of the test.

mod kernels;
pub mod ram;
mod repeat;
