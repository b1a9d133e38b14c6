//! Kernels that NVIDIA's compiler made of our own source, with operands of their own.
//!
//! Each reads 65536 words and stores as many: `kernel(u32 *out, const u32 *in, u32 n)`.

use gpuvmk_isa::Arch;
use gpuvmk_shader::cubin::{Cubin, CubinError, Kernel, Placed};

use crate::random::Random;
use crate::recorded::sum;
use crate::task::{Launched, Task};
use crate::windows::Places;

/// Words of a kernel's input and of its output.
pub const WORDS: usize = 65_536;

/// Words of a recorded sum.
pub const PART: usize = 4096;

/// Blocks, and threads of one.
const GRID: u32 = 4;
const BLOCK: u32 = 128;

/// Most bytes of a thread's stack.
pub const STACK: u32 = 0x400;
/// Most bytes of variables.
pub const VARIABLES: usize = 1 << 20;

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Its name.
    pub name: String,
    arch: Arch,
    kernel: Kernel,
}

/// The kernels of a cubin that need nothing of a linker, nor more than there is room for.
///
/// # Errors
/// It is no cubin that is known.
pub fn of_cubin(bytes: &[u8]) -> Result<Vec<Compiled>, CubinError> {
    let Cubin { arch, kernels } = Cubin::read(bytes)?;
    let plain = |kernel: &Kernel| {
        !kernel.has_relocations && kernel.stack_room() <= STACK && kernel.variables.len() <= VARIABLES
    };
    let kernels = kernels.into_iter().filter(plain);
    Ok(kernels.map(|kernel| Compiled { name: kernel.name.clone(), arch, kernel }).collect())
}

/// The words that each kernel reads.
#[must_use]
pub fn input() -> Vec<u32> {
    let mut random = Random::new(1);
    (0..WORDS).map(|_| random.word()).collect()
}

/// A line of a table: name, and sums of what was stored.
#[must_use]
pub fn line(name: &str, stored: &[u32]) -> String {
    let sums: Vec<String> = stored.chunks(PART).map(|part| format!("{:016x}", sum(part))).collect();
    format!("{name}\t{}\n", sums.join("\t"))
}

impl Launched for Compiled {
    fn task(&self, places: &Places) -> Task {
        let kernel = &self.kernel;
        let count = u32::try_from(WORDS).unwrap_or(u32::MAX).to_le_bytes().to_vec();
        let addresses = [places.outputs, places.inputs].map(|address| address.to_le_bytes().to_vec());
        let values = addresses.into_iter().chain([count]);
        let arguments: Vec<_> = kernel.parameters.iter().map(|one| one.offset).zip(values).collect();
        let (grid, block) = ([GRID, 1, 1], [BLOCK, 1, 1]);
        let (variables, local_window) = (places.variables, places.local_window);
        let placed = Placed { grid, block, variables, local_window, arguments: &arguments };
        let banks = kernel.banks(&placed).into_iter();
        let banks = banks.map(|(number, bank)| (u16::try_from(number).unwrap_or(u16::MAX), bank)).collect();
        Task {
            arch: self.arch,
            code: kernel.code.clone(),
            registers: kernel.registers,
            shared: kernel.shared,
            barriers: kernel.barriers,
            local: 0,
            local_high: kernel.stack_room(),
            grid: GRID,
            block: BLOCK,
            banks,
            variables: kernel.variables.to_vec(),
            inputs: input(),
            stored: WORDS,
            filled: 0,
        }
    }
}
