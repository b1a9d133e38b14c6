//! A program in the software GPU.

use std::sync::{Mutex, PoisonError};

use gpuvmk_sm::{
    Access, Constants, Fault, Grid, Launch, LocalMemory, Memory, MemoryFault, Progress, Twin, View, Width,
};

use crate::program::{BLOCK, IN_WORDS, OUT_WORDS, Program, REGISTERS, constants, inputs};

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

/// What `threads` threads of a program store.
///
/// # Errors
/// See [`NoOutputs`].
pub fn outputs(program: &Program, threads: u32) -> Result<Vec<u32>, NoOutputs> {
    outputs_by(Twin::of_host(), program, threads)
}

/// The same, executed by a twin.
///
/// # Errors
/// See [`NoOutputs`].
pub fn outputs_by(twin: Twin, program: &Program, threads: u32) -> Result<Vec<u32>, NoOutputs> {
    let count = usize::try_from(threads).unwrap_or(0);
    let words = |bytes: Vec<u8>| -> Vec<u32> {
        bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
    };
    let pieces = Pieces {
        code: words(program.code()),
        inputs: inputs(program.seed, count),
        outputs: Mutex::new(vec![0; count * OUT_WORDS]),
    };
    debug_assert_eq!(pieces.inputs.len(), count * IN_WORDS);
    let mut banks = Constants::default();
    banks.set(0, words(constants(program.seed, IN, OUT)));
    let launch = Launch {
        arch: program.arch,
        entry: CODE,
        registers: REGISTERS,
        grid: [threads / BLOCK, 1, 1],
        block: [BLOCK, 1, 1],
        shared: 0,
        constants: banks,
        shared_window: 0x7294_0000_0000,
        local_window: 0x7293_0000_0000,
        local: LocalMemory::default(),
    };
    match Grid::with(launch, twin)?.run(&pieces, 1, &|| true) {
        Progress::Done => Ok(pieces.outputs.into_inner().unwrap_or_else(PoisonError::into_inner)),
        Progress::Paused => Err(NoOutputs::Paused),
        Progress::Faulted(fault) => Err(fault.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Source;
    use gpuvmk_isa::Arch;

    const THREADS: u32 = BLOCK;

    #[test]
    fn a_program_of_nothing_stores_what_it_loaded() {
        let program = Program::of(Arch::Sm90, 3, Vec::new());
        let stored = outputs(&program, THREADS).unwrap();
        let loaded = inputs(3, usize::try_from(THREADS).unwrap());
        for (stored, loaded) in stored.chunks(OUT_WORDS).zip(loaded.chunks(IN_WORDS)) {
            // R32 to R63 are the inputs twice; a predicate says whether two inputs differ.
            assert_eq!(stored[..16], *loaded);
            assert_eq!(stored[16..32], *loaded);
            let differ = |k: usize| u32::from(loaded[k] != loaded[k + 8]);
            assert_eq!(stored[32..39], [0, 1, 2, 3, 4, 5, 6].map(differ));
        }
    }

    #[test]
    fn random_programs_run_to_their_ends_and_give_the_same_each_time() {
        let source = Source::new(Arch::Sm90);
        for seed in 0..16 {
            let program = Program::new(&source, Arch::Sm90, seed, 100);
            let stored = outputs(&program, THREADS).unwrap();
            assert_eq!(outputs(&program, THREADS).unwrap(), stored);
        }
    }

    #[test]
    fn twins_store_the_same() {
        let host = Twin::of_host();
        if host == Twin::PLAIN {
            eprintln!("This processor has the twin for every processor only: nothing was compared.");
            return;
        }
        let source = Source::new(Arch::Sm90);
        for seed in 100..140 {
            let program = Program::new(&source, Arch::Sm90, seed, 100);
            let [one, other] = [Twin::PLAIN, host].map(|twin| outputs_by(twin, &program, THREADS));
            assert_eq!(one, other, "seed {seed}");
        }
    }
}
