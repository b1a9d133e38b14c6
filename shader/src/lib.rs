//! Cubins: what NVIDIA's compilers make, read for the tools and tests that run kernels.

pub mod cubin;
