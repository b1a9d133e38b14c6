//! Compute kernels for chips from Turing to Hopper, and what a driver pushes to launch them.
//!
//! The kernels are CUDA C in `cuda/`; their machine code lies beside it in `sass/`, by version of the SM,
//! made by `cargo run -p gpuvmk-kernels --features generate -- --nvcc NVCC`. A launch needs three things in
//! GPU memory: the code, constant bank 0 with the parameters, and a queue meta data block ([`qmd`]); and a
//! few methods ([`launch`]).
//!
//! Sources: NVIDIA's class headers `clc5c0.h` to `clcbc0.h` and their `qmd.h` (open-gpu-doc); the layout of
//! constant bank 0 from the disassembly of compiled kernels.

pub mod launch;
pub mod spin;
pub mod target;

pub use gpuvmk_chip::qmd;
use target::Target;

/// A compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What it was compiled for.
    pub target: &'static Target,
    /// Name of its function.
    pub name: &'static str,
    /// Machine code, to lie at a multiple of [`CODE_ALIGNMENT`].
    pub code: &'static [u8],
    /// Registers of a thread.
    pub registers: u16,
    /// Bytes of shared memory of a block, with the first KiB that the compiler keeps for the system, if it
    /// does.
    pub shared: u32,
    /// Named barriers.
    pub barriers: u8,
    /// Bytes of constant bank 0, parameters included.
    pub constants: u32,
}

/// The kernels, compiled for one version of the SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels {
    /// A product of square matrices.
    pub matrix_product: Kernel,
    /// A sum of numbers, by atomics.
    pub reduce_sum: Kernel,
    /// Fills shared memory.
    pub shared_fill: Kernel,
    /// Looks at shared memory.
    pub shared_look: Kernel,
    /// Keeps the shader cores busy.
    pub spin: Kernel,
    /// A sum of vectors.
    pub vector_add: Kernel,
}

impl Kernels {
    /// All of them.
    pub const fn all(&self) -> [&Kernel; 6] {
        [
            &self.vector_add,
            &self.matrix_product,
            &self.reduce_sum,
            &self.spin,
            &self.shared_fill,
            &self.shared_look,
        ]
    }
}

/// Where code may lie.
pub const CODE_ALIGNMENT: u64 = 256;

include!("../sass/table.rs");

/// The kernels for every version of the SM that there are any for.
pub const ALL: [&Kernels; 4] = [&SM75, &SM86, &SM89, &SM90];

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
        for kernel in ALL.into_iter().flat_map(Kernels::all) {
            assert!(!kernel.code.is_empty() && kernel.code.len().is_multiple_of(16), "{}", kernel.name);
            assert!(kernel.constants >= kernel.target.parameters, "{}", kernel.name);
        }
    }
}
