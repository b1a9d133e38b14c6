//! Cubins: what NVIDIA's compilers make, read for the tools and tests that run kernels; and memory for these.

pub mod cubin;
pub mod memory;
