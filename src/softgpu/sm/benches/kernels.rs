//! How fast shaders run: `cargo bench -p gpuvmk-sm --bench kernels [-- --json]`, or `cargo xtask bench
//! shader`; with `--only NAME` one kernel, for profiles.
//!
//! Rates are per second of processor time, so that others on the machine do not matter; with all workers they
//! are also told by the wall clock. Kernels are those of `tests/kernels` and of `sass/kernels.cu`.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::print_stdout, reason = "a benchmark")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use gpuvmk_isa::Arch;
use gpuvmk_sm::{
    Access, Constants, Grid, Launch, LocalMemory, Memory, MemoryFault, Progress, Started, Twin, View, Width,
};

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

macro_rules! code {
    (kernels, $name:literal) => {
        include_bytes!(concat!("../../../../tests/kernels/sass/sm90/", $name, ".bin"))
    };
    (own, $name:literal) => {
        include_bytes!(concat!("sass/", $name, ".bin"))
    };
}

const SPIN: Kernel = Kernel {
    name: "spin",
    code: code!(kernels, "spin"),
    registers: 8,
    shared: 0,
    grid: [64, 1, 1],
    block: [256, 1, 1],
    pointers: &[C],
    words: &[10_000, 99],
    work: [0.0; 2],
};

const MIXED: Kernel = Kernel {
    name: "mixed",
    code: code!(own, "mixed"),
    registers: 16,
    shared: 0,
    grid: [64, 1, 1],
    block: [256, 1, 1],
    pointers: &[C],
    words: &[4_000, 99],
    work: [0.0; 2],
};

const VECTOR_SUM: Kernel = Kernel {
    name: "vector_add",
    code: code!(kernels, "vector_add"),
    registers: 12,
    shared: 0,
    grid: [4096, 1, 1],
    block: [256, 1, 1],
    pointers: &[A, B, C],
    words: &[1 << 20],
    work: [1048576.0, 12.0 * 1048576.0],
};

const SMALL_TILES: Kernel = Kernel {
    name: "matrix_product",
    code: code!(kernels, "matrix_product"),
    registers: 32,
    shared: 3072,
    grid: [16, 16, 1],
    block: [16, 16, 1],
    pointers: &[A, B, C],
    words: &[256],
    work: [2.0 * 256.0 * 256.0 * 256.0, 0.0],
};

const TILES: Kernel = Kernel {
    name: "product",
    code: code!(own, "product"),
    registers: 56,
    shared: 9216,
    grid: [8, 8, 1],
    block: [256, 1, 1],
    pointers: &[A, B, C],
    words: &[512],
    work: [2.0 * 512.0 * 512.0 * 512.0, 0.0],
};

const EMPTY: Kernel = Kernel {
    name: "empty",
    code: code!(own, "empty"),
    registers: 4,
    shared: 0,
    grid: [1, 1, 1],
    block: [32, 1, 1],
    pointers: &[],
    words: &[],
    work: [0.0; 2],
};

/// What is wanted of a core.
const LEAST_INSTRUCTIONS: f64 = 60e6;
const LEAST_GFLOPS: f64 = 1.5;
const LEAST_BYTES: f64 = 1e9;
/// What is wanted of a core among all of them, as a part of what it does alone.
const LEAST_SCALING: f64 = 0.8;

/// Each kernel runs for so long, and so many times at least. The fastest run counts: a core of a machine that
/// others use is half of one at times.
const LONGEST: Duration = Duration::from_millis(600);
const ROUNDS: usize = 3;

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

/// Time that processors spent for this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// How fast a kernel ran: per second of processor time, and of the clock.
#[derive(Clone, Copy, Default)]
struct Rates {
    instructions: [f64; 2],
    operations: [f64; 2],
    bytes: [f64; 2],
    seconds: f64,
}

fn ram(kernel: &Kernel) -> Ram {
    let ram = Ram((0..4 * PART).map(|_| AtomicU32::new(0)).collect());
    for (word, bytes) in ram.0.iter().zip(kernel.code.chunks_exact(4)) {
        word.store(u32::from_le_bytes(bytes.try_into().unwrap()), Ordering::Relaxed);
    }
    ram
}

fn measure(kernel: &Kernel, workers: usize, twin: Twin) -> Rates {
    let ram = ram(kernel);
    let mut best = Rates::default();
    let mut spent = Duration::ZERO;
    for round in 0.. {
        if round >= ROUNDS && spent >= LONGEST {
            break;
        }
        let (start, busy) = (Instant::now(), processor_time());
        let grid = Grid::with(launch(kernel), twin).unwrap();
        assert_eq!(grid.run(&ram, &Started(workers), &|| true), Progress::Done);
        let busy = processor_time() - busy;
        spent += busy;
        let busy = busy.as_secs_f64();
        let clock = start.elapsed().as_secs_f64();
        let rates = |work: f64| [work / busy, work / clock];
        let found = Rates {
            instructions: rates(grid.instructions() as f64),
            operations: rates(kernel.work[0]),
            bytes: rates(kernel.work[1]),
            seconds: busy,
        };
        if found.instructions[0] > best.instructions[0] {
            best = found;
        }
    }
    println!(
        "{:14} workers {workers}: {:6.1} M instructions of warps/s, {:.3} GFLOP/s, {:.3} GB/s a core; {:.1} M/s in all",
        kernel.name,
        best.instructions[0] / 1e6,
        best.operations[0] / 1e9,
        best.bytes[0] / 1e9,
        best.instructions[1] / 1e6,
    );
    best
}

/// A number of a few digits.
fn short(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The kernels of a name that follows `--only`, on one worker, for profiles: nothing is judged then.
fn only() -> bool {
    let mut words = std::env::args().skip_while(|word| word != "--only").skip(1);
    let Some(name) = words.next() else { return false };
    for kernel in [&SPIN, &MIXED, &VECTOR_SUM, &SMALL_TILES, &TILES, &EMPTY] {
        if kernel.name == name {
            measure(kernel, 1, Twin::of_host());
        }
    }
    true
}

fn main() -> ExitCode {
    if only() {
        return ExitCode::SUCCESS;
    }
    let workers = available_parallelism().map_or(1, usize::from);
    let host = Twin::of_host();
    let [spin, mixed, sum, small, tiles] =
        [&SPIN, &MIXED, &VECTOR_SUM, &SMALL_TILES, &TILES].map(|kernel| measure(kernel, 1, host));
    println!("all workers:");
    let [all_mixed, all_sum, all_tiles] =
        [&MIXED, &VECTOR_SUM, &TILES].map(|kernel| measure(kernel, workers, host));
    println!("for any processor:");
    let plain = measure(&MIXED, 1, Twin::PLAIN);
    let empty = measure(&EMPTY, workers, host);
    let scaling = all_mixed.instructions[0] / mixed.instructions[0];
    let wanted = [
        (mixed.instructions[0] >= LEAST_INSTRUCTIONS, "instructions"),
        (tiles.operations[0] >= LEAST_GFLOPS * 1e9, "FP32"),
        (sum.bytes[0] >= LEAST_BYTES, "vector sum"),
        (scaling >= LEAST_SCALING, "scaling"),
    ];
    let missed: Vec<&str> = wanted.iter().filter(|(met, _)| !met).map(|(_, what)| *what).collect();
    let ok = missed.is_empty();
    println!("empty grid: {:.1} us; scaling {scaling:.2} with {workers} workers", empty.seconds * 1e6);
    if !ok {
        println!("Below what is wanted: {}", missed.join(", "));
    }
    if std::env::args().any(|word| word == "--json") {
        let figures = serde_json::json!({
            "ok": ok,
            "below": missed,
            "warp_instructions_per_s": mixed.instructions[0].round(),
            "warp_instructions_per_s_all": all_mixed.instructions[1].round(),
            "warp_instructions_per_s_any_processor": plain.instructions[0].round(),
            "warp_instructions_per_s_integers": spin.instructions[0].round(),
            "gflops_fp32": short(tiles.operations[0] / 1e9),
            "gflops_fp32_all": short(all_tiles.operations[1] / 1e9),
            "gflops_fp32_small_tiles": short(small.operations[0] / 1e9),
            "vector_sum_bytes_per_s": sum.bytes[0].round(),
            "vector_sum_bytes_per_s_all": all_sum.bytes[1].round(),
            "workers": workers,
            "scaling": short(scaling),
            "empty_grid_us": short(empty.seconds * 1e6),
        });
        println!("{figures}");
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
