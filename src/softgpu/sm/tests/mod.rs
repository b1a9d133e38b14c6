//! Kernels of our own, run on memory of the test.

mod compiled;
mod kernels;
mod quick;
pub mod ram;
mod repeat;
mod words;
