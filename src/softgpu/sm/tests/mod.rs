//! Kernels of our own, run on memory of the test.

mod kernels;
mod ram;
