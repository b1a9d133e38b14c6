//! Compute kernels for Hopper, and what a driver pushes to launch them on class cbc0 (HOPPER_COMPUTE_A).
//!
//! The kernels are CUDA C in `cuda/`; their machine code (SM 9.0) lies beside it in `sass/`, made by `cargo
//! run -p gpuvmk-kernels --features generate -- --nvcc NVCC`. A launch needs three things in GPU memory: the
//! code, constant bank 0 with the parameters, and a queue meta data block ([`qmd`]); and a few methods
//! ([`launch`]).
//!
//! Sources: NVIDIA's class headers `clcbc0.h` and `clcbc0qmd.h` (open-gpu-doc); the layout of constant bank 0
//! from the disassembly of compiled kernels.

pub mod launch;
pub mod spin;

pub use gpuvmk_chip::qmd;

/// A compiled kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Name of its function.
    pub name: &'static str,
    /// Machine code, to lie at a multiple of [`CODE_ALIGNMENT`].
    pub code: &'static [u8],
    /// Registers of a thread.
    pub registers: u16,
    /// Bytes of shared memory of a block, with the first KiB that the compiler keeps for the system.
    pub shared: u32,
    /// Named barriers.
    pub barriers: u8,
    /// Bytes of constant bank 0, parameters included.
    pub constants: u32,
}

/// Where code may lie.
pub const CODE_ALIGNMENT: u64 = 256;

include!("../sass/table.rs");

/// All kernels.
pub const KERNELS: [Kernel; 6] = [VECTOR_ADD, MATRIX_PRODUCT, REDUCE_SUM, SPIN, SHARED_FILL, SHARED_LOOK];

/// FNV-1a, to tell that the machine code belongs to the source.
pub const fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut index = 0;
    while index < bytes.len() {
        // CAST: widening.
        hash = (hash ^ bytes[index] as u64).wrapping_mul(0x100_0000_01b3);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_was_made_of_the_source_that_lies_beside_it() {
        let source = include_bytes!("../cuda/kernels.cu");
        assert_eq!(fingerprint(source), SOURCE, "generate the kernels anew");
    }

    #[test]
    fn code_is_whole_instructions() {
        for kernel in KERNELS {
            assert!(!kernel.code.is_empty() && kernel.code.len().is_multiple_of(16), "{}", kernel.name);
            assert!(kernel.constants >= launch::PARAMETERS, "{}", kernel.name);
        }
    }
}
