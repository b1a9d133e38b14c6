//! A program in the software GPU.

use std::sync::{Mutex, PoisonError};

use gpuvmk_sm::{
    Access, Alone, Constants, Fault, Grid, Launch, LocalMemory, Memory, MemoryFault, Progress, Twin, View,
    Width,
};

use gpuvmk_isa::Opcode;

use crate::program::{BLOCK, Program, REGISTERS};

/// Where code, inputs and outputs lie.
const CODE: u64 = 0x10_0000;
const IN: u64 = 0x100_0000;
const OUT: u64 = 0x200_0000;

/// Why a program gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoOutputs {
    /// The launch asks for too much.
    #[error(transparent)]
    Launch(#[from] gpuvmk_sm::LaunchError),
    /// A warp stopped.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// It paused, though nobody asked it to.
    #[error("the grid paused")]
    Paused,
}

/// Memory in three pieces.
#[derive(Debug)]
struct Pieces {
    code: Vec<u32>,
    inputs: Vec<u32>,
    outputs: Mutex<Vec<u32>>,
}

fn index(address: u64, base: u64, length: usize) -> Option<usize> {
    let index = usize::try_from(address.checked_sub(base)? / 4).ok()?;
    (index < length).then_some(index)
}

impl Memory for Pieces {
    fn view(&self) -> Box<dyn View + '_> {
        Box::new(PiecesView(self))
    }
}

#[derive(Debug)]
struct PiecesView<'a>(&'a Pieces);

impl View for PiecesView<'_> {
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault> {
        let Self(pieces) = self;
        for (word, at) in words.iter_mut().zip((address..).step_by(4)) {
            let code = index(at, CODE, pieces.code.len()).map(|index| pieces.code[index]);
            let input = || index(at, IN, pieces.inputs.len()).map(|index| pieces.inputs[index]);
            // Code is fetched by pages: behind it there is nothing.
            let behind = || (at < IN).then_some(0);
            let missing = MemoryFault { address: at, access: Access::Read };
            *word = code.or_else(input).or_else(behind).ok_or(missing)?;
        }
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        Err(MemoryFault { address, access: Access::Read })
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        let mut outputs = self.0.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        for (word, at) in words.iter().zip((address..).step_by(4)) {
            let length = outputs.len();
            let place = index(at, OUT, length).ok_or(MemoryFault { address: at, access: Access::Write })?;
            outputs[place] = *word;
        }
        Ok(())
    }

    fn store_byte(&mut self, address: u64, _: u8) -> Result<(), MemoryFault> {
        Err(MemoryFault { address, access: Access::Write })
    }

    fn update(&mut self, address: u64, _: Width, _: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        Err(MemoryFault { address, access: Access::Atomic })
    }

    fn timer(&mut self) -> u64 {
        0
    }
}

/// What the threads of a program store.
///
/// # Errors
/// See [`NoOutputs`].
pub fn outputs(program: &Program) -> Result<Vec<u32>, NoOutputs> {
    outputs_by(Twin::of_host(), program)
}

/// The same, executed by a twin.
///
/// # Errors
/// See [`NoOutputs`].
pub fn outputs_by(twin: Twin, program: &Program) -> Result<Vec<u32>, NoOutputs> {
    let words = |bytes: Vec<u8>| -> Vec<u32> {
        bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
    };
    let pieces = Pieces {
        code: words(program.code()),
        inputs: program.inputs(),
        outputs: Mutex::new(vec![0; program.stored()]),
    };
    let mut banks = Constants::default();
    banks.set(0, words(program.constants(IN, OUT)));
    let launch = Launch {
        arch: program.arch,
        entry: CODE,
        registers: REGISTERS,
        grid: [program.threads.div_ceil(BLOCK), 1, 1],
        block: [program.threads.min(BLOCK), 1, 1],
        shared: 0,
        constants: banks,
        shared_window: 0x7294_0000_0000,
        local_window: 0x7293_0000_0000,
        local: LocalMemory::default(),
    };
    match Grid::with(launch, twin)?.run(&pieces, &Alone, &|| true) {
        Progress::Done => Ok(pieces.outputs.into_inner().unwrap_or_else(PoisonError::into_inner)),
        Progress::Paused => Err(NoOutputs::Paused),
        Progress::Faulted(fault) => Err(fault.into()),
    }
}

/// Whether the software GPU executes an operation.
#[must_use]
pub const fn executes(opcode: Opcode) -> bool {
    !matches!(opcode, Opcode::I2i | Opcode::I2ip | Opcode::Up2ur)
}

#[cfg(test)]
mod tests {
    use gpuvmk_isa::{Arch, Word};

    use super::*;
    use crate::program::IN_WORDS;

    #[test]
    fn an_instance_stores_its_results() {
        // IADD3 R32, P4, P5, R16, R17, R18.
        let sum = Word(0x7210 | 32 << 16 | 16 << 24 | 17 << 32 | 18 << 64 | 4 << 81 | 5 << 84 | 0xf << 87);
        let program = Program::of(Arch::Sm90, 3, BLOCK, &[sum, sum]);
        let [first, second] = [0, 1].map(|half| {
            let stored = outputs(&program).unwrap();
            stored[half * stored.len() / 2..][..stored.len() / 2].to_vec()
        });
        assert_eq!(first, second);
        let threads = usize::try_from(BLOCK).unwrap();
        for (thread, inputs) in program.inputs().chunks(IN_WORDS).enumerate() {
            let exact = inputs[..3].iter().map(|word| u64::from(*word)).sum::<u64>();
            let [sum, behind, predicates] = [0, 1, 2].map(|slot| first[slot * threads + thread]);
            assert_eq!(u64::from(sum), exact & 0xffff_ffff);
            assert_eq!(behind, inputs[13]);
            assert_eq!(predicates >> 4 & 3, [0, 1, 3][usize::try_from(exact >> 32).unwrap()]);
            let differ = |index: usize| u32::from(inputs[index] != inputs[index + 8]) << index;
            assert_eq!(predicates & 7, differ(0) | differ(1) | differ(2));
        }
    }
}
