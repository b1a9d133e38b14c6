//! A program in the software GPU.

use std::sync::{Mutex, PoisonError};

use gpuvmk_sm::{
    Access, Alone, Constants, Fault, Grid, Launch, LocalMemory, Memory, MemoryFault, Progress, Twin, View,
    Width,
};

use gpuvmk_isa::Opcode;

use crate::task::Launched;
use crate::windows::{Places, SIZE};

/// Where code, inputs, outputs, windows and local memory lie.
const CODE: u64 = 0x10_0000;
const IN: u64 = 0x100_0000;
const OUT: u64 = 0x200_0000;
const WINDOWS: u64 = 0x1_0000_0000;
const LOCAL: u64 = 0x2_0000_0000;
const VARIABLES: u64 = 0x3_0000_0000;
const PLACES: Places = Places {
    code: CODE,
    inputs: IN,
    outputs: OUT,
    windows: WINDOWS,
    variables: VARIABLES,
    shared_window: 0x7294_0000_0000,
    local_window: 0x7293_0000_0000,
};

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

/// Memory in pieces: code, inputs, and those that are written.
#[derive(Debug)]
struct Pieces {
    code: Vec<u32>,
    inputs: Vec<u32>,
    written: [(u64, Mutex<Vec<u32>>); 4],
}

fn index(address: u64, base: u64, length: usize) -> Option<usize> {
    let index = usize::try_from(address.checked_sub(base)? / 4).ok()?;
    (index < length).then_some(index)
}

impl Pieces {
    fn changed(&self, address: u64, change: impl FnOnce(&mut u32)) -> Option<()> {
        let (base, words) = self.written.iter().rev().find(|(base, _)| address >= *base)?;
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        let length = words.len();
        change(words.get_mut(index(address, *base, length)?)?);
        Some(())
    }

    fn word(&self, address: u64) -> Option<u32> {
        let mut word = None;
        self.changed(address, |found| word = Some(*found));
        let code = || index(address, CODE, self.code.len()).map(|index| self.code[index]);
        let input = || index(address, IN, self.inputs.len()).map(|index| self.inputs[index]);
        // Code is fetched by pages: behind it there is nothing.
        word.or_else(code).or_else(input).or_else(|| (address < IN).then_some(0))
    }
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
        for (word, at) in words.iter_mut().zip((address..).step_by(4)) {
            *word = self.0.word(at).ok_or(MemoryFault { address: at, access: Access::Read })?;
        }
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        let word = self.0.word(address & !3).ok_or(MemoryFault { address, access: Access::Read })?;
        Ok(word.to_le_bytes()[usize::try_from(address % 4).unwrap_or(0)])
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        for (word, at) in words.iter().zip((address..).step_by(4)) {
            let stored = self.0.changed(at, |found| *found = *word);
            stored.ok_or(MemoryFault { address: at, access: Access::Write })?;
        }
        Ok(())
    }

    fn store_byte(&mut self, address: u64, byte: u8) -> Result<(), MemoryFault> {
        let stored = self.0.changed(address & !3, |found| {
            let mut bytes = found.to_le_bytes();
            bytes[usize::try_from(address % 4).unwrap_or(0)] = byte;
            *found = u32::from_le_bytes(bytes);
        });
        stored.ok_or(MemoryFault { address, access: Access::Write })
    }

    fn update(
        &mut self,
        address: u64,
        width: Width,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        // Each thread has windows of its own, so that nobody comes between.
        let missing = MemoryFault { address, access: Access::Atomic };
        let wide = width == Width::Double;
        let low = u64::from(self.0.word(address).ok_or(missing)?);
        let high = if wide { u64::from(self.0.word(address + 4).ok_or(missing)?) } else { 0 };
        let old = low | high << 32;
        let new = change(old);
        let halves = [new & u64::from(u32::MAX), new >> 32].map(|half| u32::try_from(half).unwrap_or(0));
        self.store(address, if wide { &halves } else { &halves[..1] })?;
        Ok(old)
    }

    fn timer(&mut self) -> u64 {
        0
    }
}

/// What the threads of a program store.
///
/// # Errors
/// See [`NoOutputs`].
pub fn outputs(program: &dyn Launched) -> Result<Vec<u32>, NoOutputs> {
    outputs_by(Twin::of_host(), program)
}

/// The same, executed by a twin.
///
/// # Errors
/// See [`NoOutputs`].
pub fn outputs_by(twin: Twin, program: &dyn Launched) -> Result<Vec<u32>, NoOutputs> {
    let task = program.task(&PLACES);
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
    };
    let threads = u64::from(task.grid) * u64::from(task.block);
    let windows = usize::try_from(threads * u64::from(SIZE) / 4).unwrap_or(0);
    // The threads of those blocks that are resident, each with its own.
    let room = u64::from(task.local + task.local_high)
        * u64::from(task.block.next_multiple_of(32))
        * u64::from(task.grid);
    let local = LocalMemory { base: LOCAL, size: room, low: task.local, high: task.local_high };
    let room = usize::try_from(room / 4).unwrap_or(0);
    let pieces = Pieces {
        code: words(&task.code),
        inputs: task.inputs,
        written: [
            (OUT, vec![u32::from_le_bytes([task.filled; 4]); task.stored]),
            (WINDOWS, vec![0; windows]),
            (LOCAL, vec![0; room]),
            (VARIABLES, words(&task.variables)),
        ]
        .map(|(base, words)| (base, Mutex::new(words))),
    };
    let mut banks = Constants::default();
    for (number, bank) in &task.banks {
        banks.set((*number).into(), words(bank));
    }
    let launch = Launch {
        arch: task.arch,
        entry: CODE,
        registers: task.registers,
        grid: [task.grid, 1, 1],
        block: [task.block, 1, 1],
        shared: task.shared,
        constants: banks,
        shared_window: PLACES.shared_window,
        local_window: PLACES.local_window,
        local,
    };
    match Grid::with(launch, twin)?.run(&pieces, &Alone, &|| true) {
        Progress::Done => {
            let [(_, outputs), ..] = pieces.written;
            Ok(outputs.into_inner().unwrap_or_else(PoisonError::into_inner))
        }
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
    use crate::program::{BLOCK, IN_WORDS, Program};

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
