//! Rates of the kernels of `tests/kernels`: `cargo bench -p gpuvmk-sm`. Each figure is of one worker, by the
//! wall clock; the last ones say what two workers do.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::print_stdout, reason = "a benchmark")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use gpuvmk_isa::Arch;
use gpuvmk_sm::{Access, Constants, Grid, Launch, LocalMemory, Memory, MemoryFault, Progress, View, Width};

const BASE: u64 = 0x7f00_0000_0000;
/// Words of the arrays and of the code.
const PART: usize = 1 << 20;

/// One region of memory: code, and three arrays.
struct Ram(Vec<AtomicU32>);

struct Look<'a>(&'a Ram);

impl Memory for Ram {
    fn view(&self) -> Box<dyn View + '_> {
        Box::new(Look(self))
    }
}

impl Look<'_> {
    fn words(&self, address: u64, count: usize, access: Access) -> Result<&[AtomicU32], MemoryFault> {
        let first = usize::try_from(address.wrapping_sub(BASE) / 4).unwrap_or(usize::MAX);
        let words = self.0.0.get(first..).and_then(|words| words.get(..count));
        words.ok_or(MemoryFault { address, access })
    }
}

impl View for Look<'_> {
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault> {
        let from = self.words(address, words.len(), Access::Read)?;
        for (word, from) in words.iter_mut().zip(from) {
            *word = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        Err(MemoryFault { address, access: Access::Read })
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        let to = self.words(address, words.len(), Access::Write)?;
        for (word, to) in words.iter().zip(to) {
            to.store(*word, Ordering::Relaxed);
        }
        Ok(())
    }

    fn store_byte(&mut self, address: u64, _byte: u8) -> Result<(), MemoryFault> {
        Err(MemoryFault { address, access: Access::Write })
    }

    fn update(
        &mut self,
        address: u64,
        _width: Width,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        // No kernel here has more than one worker's sums in a word that is read.
        let word = &self.words(address, 1, Access::Atomic)?[0];
        let old = u64::from(word.load(Ordering::Relaxed));
        word.store((change(old) & 0xffff_ffff) as u32, Ordering::Relaxed);
        Ok(old)
    }

    fn timer(&mut self) -> u64 {
        0
    }
}

struct Kernel {
    name: &'static str,
    code: &'static [u8],
    registers: u16,
    shared: u32,
    grid: [u32; 3],
    block: [u32; 3],
    pointers: &'static [u64],
    words: &'static [u32],
    /// Floating point operations, and bytes moved.
    work: [f64; 2],
}

const A: u64 = BASE + 4 * PART as u64;
const B: u64 = A + 4 * PART as u64;
const C: u64 = B + 4 * PART as u64;

const KERNELS: [Kernel; 3] = [
    Kernel {
        name: "spin",
        code: include_bytes!("../../../../tests/kernels/sass/spin.bin"),
        registers: 8,
        shared: 0,
        grid: [16, 1, 1],
        block: [256, 1, 1],
        pointers: &[C],
        words: &[10_000, 99],
        work: [0.0; 2],
    },
    Kernel {
        name: "vector_add",
        code: include_bytes!("../../../../tests/kernels/sass/vector_add.bin"),
        registers: 12,
        shared: 0,
        grid: [4096, 1, 1],
        block: [256, 1, 1],
        pointers: &[A, B, C],
        words: &[1 << 20],
        work: [1048576.0, 12.0 * 1048576.0],
    },
    Kernel {
        name: "matrix_product",
        code: include_bytes!("../../../../tests/kernels/sass/matrix_product.bin"),
        registers: 32,
        shared: 3072,
        grid: [16, 16, 1],
        block: [16, 16, 1],
        pointers: &[A, B, C],
        words: &[256],
        work: [2.0 * 256.0 * 256.0 * 256.0, 0.0],
    },
];

fn launch(kernel: &Kernel) -> Launch {
    let mut bank = vec![0; 256];
    bank[..3].copy_from_slice(&kernel.block);
    bank[3..6].copy_from_slice(&kernel.grid);
    let halves = kernel.pointers.iter().flat_map(|pointer| [*pointer & 0xffff_ffff, pointer >> 32]);
    let parameters = halves.map(|half| u32::try_from(half).unwrap()).chain(kernel.words.iter().copied());
    for (to, word) in bank[0x210 / 4..].iter_mut().zip(parameters) {
        *to = word;
    }
    let mut constants = Constants::default();
    constants.set(0, bank);
    Launch {
        arch: Arch::Sm90,
        entry: BASE,
        registers: kernel.registers,
        grid: kernel.grid,
        block: kernel.block,
        shared: kernel.shared,
        constants,
        shared_window: 0,
        local_window: 1 << 24,
        local: LocalMemory::default(),
    }
}

fn main() {
    for workers in [1, 2] {
        for kernel in &KERNELS {
            let ram = Ram((0..4 * PART).map(|_| AtomicU32::new(0)).collect());
            for (word, bytes) in ram.0.iter().zip(kernel.code.chunks_exact(4)) {
                word.store(u32::from_le_bytes(bytes.try_into().unwrap()), Ordering::Relaxed);
            }
            let grid = Grid::new(launch(kernel)).unwrap();
            let start = Instant::now();
            assert_eq!(grid.run(&ram, workers, &|| true), Progress::Done);
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{} workers {workers}: {:.1} ms, {:.1} M warp instructions/s, {:.3} GFLOP/s, {:.3} GB/s",
                kernel.name,
                seconds * 1e3,
                grid.instructions() as f64 / seconds / 1e6,
                kernel.work[0] / seconds / 1e9,
                kernel.work[1] / seconds / 1e9,
            );
        }
    }
}
