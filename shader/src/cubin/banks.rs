//! Constant banks of a launch, as NVIDIA's driver fills them.

use super::{Kernel, Parameter};

/// Where bank 0 has the sizes of block and grid.
const BLOCK_AT: usize = 0x00;
const GRID_AT: usize = 0x0c;
/// Where it has the address of the window of local memory, and the top of the stack.
const LOCAL_AT: usize = 0x20;
const STACK_AT: usize = 0x28;

/// Local memory ends here: stacks grow from it.
const STACK_TOP: u32 = 1 << 24;

/// Least bytes of a thread's stack: a kernel with recursion does not say how much it needs. CUDA gives as
/// much, unless a program asks for more.
const LEAST_STACK: u32 = 1024;

/// What a launch knows and a file does not.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of one.
    pub block: [u32; 3],
    /// Where [`Kernel::variables`] lie.
    pub variables: u64,
    /// Where generic addresses of local memory begin.
    pub local_window: u64,
    /// Arguments, each with its parameter's offset.
    pub arguments: &'a [(u16, Vec<u8>)],
}

/// Puts bytes into a bank, which grows to have room.
fn put(bank: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if bank.len() < end {
        bank.resize(end, 0);
    }
    bank[at..end].copy_from_slice(bytes);
}

impl Kernel {
    /// Constant banks of a launch, with their numbers: bank 0 is one of them.
    #[must_use]
    pub fn banks(&self, placed: &Placed<'_>) -> Vec<(usize, Vec<u8>)> {
        let mut banks = self.constants.clone();
        if !banks.iter().any(|(number, _)| *number == 0) {
            banks.push((0, Vec::new()));
        }
        for (number, bank) in &mut banks {
            for link in self.links.iter().filter(|link| link.bank == *number) {
                put(bank, link.at, &placed.variables.wrapping_add(link.to).to_le_bytes());
            }
            if *number == 0 {
                put(bank, BLOCK_AT, &placed.block.map(u32::to_le_bytes).concat());
                put(bank, GRID_AT, &placed.grid.map(u32::to_le_bytes).concat());
                put(bank, LOCAL_AT, &placed.local_window.to_le_bytes());
                put(bank, STACK_AT, &STACK_TOP.to_le_bytes());
                for (offset, argument) in placed.arguments {
                    put(bank, usize::from(self.parameters_at) + usize::from(*offset), argument);
                }
            }
        }
        banks
    }

    /// Arguments for its parameters, each cut to its parameter's size. `None`: there are more or fewer, or a
    /// parameter is larger.
    #[must_use]
    pub fn arguments(&self, values: &[u64]) -> Option<Vec<(u16, Vec<u8>)>> {
        let whole = |(value, parameter): (&u64, &Parameter)| {
            let size = usize::try_from(parameter.size).ok()?;
            Some((parameter.offset, value.to_le_bytes().get(..size)?.to_vec()))
        };
        (values.len() == self.parameters.len())
            .then(|| values.iter().zip(&self.parameters).map(whole).collect())
            .flatten()
    }

    /// Bytes of local memory of a thread, which end at address 2^24.
    #[must_use]
    pub fn stack_room(&self) -> u32 {
        self.stack.max(LEAST_STACK).next_multiple_of(16)
    }
}
