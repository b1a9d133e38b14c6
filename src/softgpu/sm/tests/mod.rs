//! Kernels of our own, run on memory of the test.

mod kernels;
mod quick;
pub mod ram;
mod repeat;
