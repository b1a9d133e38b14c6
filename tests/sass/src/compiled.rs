//! Kernels that NVIDIA's compiler made of our own source, with operands of their own.
//!
//! Each reads 65536 words and stores as many: `kernel(u32 *out, const u32 *in, u32 n)`.

use gpuvmk_isa::Arch;
use gpuvmk_shader::cubin::{Cubin, CubinError, Kernel};

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

/// Where constant bank 0 has the sizes of block and grid, and the top of the stack.
const BLOCK_AT: usize = 0x00;
const GRID_AT: usize = 0x0c;
const STACK_AT: usize = 0x28;

/// Bytes of a stack: those of kernels with recursion are not told.
const STACK: u32 = 0x200;

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Its name.
    pub name: String,
    arch: Arch,
    kernel: Kernel,
}

/// The kernels of a cubin that need nothing of a linker, and no variables.
///
/// # Errors
/// It is no cubin that is known.
pub fn of_cubin(bytes: &[u8]) -> Result<Vec<Compiled>, CubinError> {
    let Cubin { arch, kernels } = Cubin::read(bytes)?;
    let plain = |kernel: &Kernel| !kernel.has_relocations && kernel.links.is_empty() && kernel.stack <= STACK;
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

fn put(bank: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if bank.len() < end {
        bank.resize(end, 0);
    }
    bank[at..end].copy_from_slice(bytes);
}

impl Launched for Compiled {
    fn task(&self, places: &Places) -> Task {
        let kernel = &self.kernel;
        let mut banks: Vec<(u16, Vec<u8>)> = kernel
            .constants
            .iter()
            .map(|(number, bytes)| (u16::try_from(*number).unwrap_or(u16::MAX), bytes.clone()))
            .collect();
        if !banks.iter().any(|(number, _)| *number == 0) {
            banks.push((0, Vec::new()));
        }
        let count = u32::try_from(WORDS).unwrap_or(u32::MAX);
        let parameters =
            [&places.outputs.to_le_bytes()[..], &places.inputs.to_le_bytes(), &count.to_le_bytes()].concat();
        for (_, bank) in banks.iter_mut().filter(|(number, _)| *number == 0) {
            put(bank, BLOCK_AT, &[BLOCK, 1, 1].map(u32::to_le_bytes).concat());
            put(bank, GRID_AT, &[GRID, 1, 1].map(u32::to_le_bytes).concat());
            put(bank, STACK_AT, &STACK.to_le_bytes());
            put(bank, kernel.parameters_at.into(), &parameters);
        }
        Task {
            arch: self.arch,
            code: kernel.code.clone(),
            registers: kernel.registers,
            shared: kernel.shared,
            barriers: 1,
            local: STACK,
            local_high: 0,
            grid: GRID,
            block: BLOCK,
            banks,
            inputs: input(),
            stored: WORDS,
        }
    }
}
