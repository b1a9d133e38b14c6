//! How fast the software GPU computes what our Vulkan shaders (`tests/nvk/shaders`) do: `cargo bench -p
//! gpuvmk-sm --bench vulkan [-- --json]`, with `--only NAME` one of them, for profiles; a part of `cargo
//! xtask bench shader`, which has lavapipe run the shaders beside it.
//!
//! The code is NVIDIA's assembler's, of PTX that does the same step by step (`sass/vulkan/`). One worker
//! runs it; the time is the processor's, and the quickest run counts. Results are compared with what they
//! should be.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::print_stdout, reason = "a benchmark")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gpuvmk_isa::Arch;
use gpuvmk_sm::{
    Access, Alone, Constants, Grid, Launch, LocalMemory, Memory, MemoryFault, Progress, View, Width,
};

/// Each shader runs for so long, and so many times at least.
const LONGEST: Duration = Duration::from_millis(600);
const ROUNDS: usize = 3;

/// Memory in regions.
#[derive(Default)]
struct Ram(Vec<(u64, Vec<AtomicU32>)>);

impl Ram {
    fn map(&mut self, address: u64, words: &[u32]) {
        self.0.push((address, words.iter().map(|word| AtomicU32::new(*word)).collect()));
    }

    fn fill(&self, address: u64, words: &[u32]) {
        for (to, word) in self.words(address, words.len(), Access::Write).unwrap().iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
    }

    fn words(&self, address: u64, count: usize, access: Access) -> Result<&[AtomicU32], MemoryFault> {
        let found = self.0.iter().find_map(|(base, words)| {
            let first = usize::try_from(address.checked_sub(*base)? / 4).ok()?;
            words.get(first..)?.get(..count)
        });
        found.ok_or(MemoryFault { address, access })
    }
}

struct Look<'a>(&'a Ram);

impl Memory for Ram {
    fn view(&self) -> Box<dyn View + '_> {
        Box::new(Look(self))
    }
}

impl View for Look<'_> {
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault> {
        let from = self.0.words(address, words.len(), Access::Read)?;
        for (word, from) in words.iter_mut().zip(from) {
            *word = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        Err(MemoryFault { address, access: Access::Read })
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        let to = self.0.words(address, words.len(), Access::Write)?;
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
        let word = &self.0.words(address, 1, Access::Atomic)?[0];
        let mut changed = |old: u32| Some((change(old.into()) & 0xffff_ffff) as u32);
        let old = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, &mut changed);
        Ok(old.unwrap_or_else(|old| old).into())
    }

    fn timer(&mut self) -> u64 {
        0
    }
}

/// What lies in a buffer before a launch, and what must be there after it.
struct Contents {
    before: Vec<u32>,
    after: Vec<u32>,
}

impl Contents {
    /// Not changed.
    fn read(words: Vec<u32>) -> Self {
        Self { after: words.clone(), before: words }
    }

    /// Written in whole.
    fn written(words: Vec<u32>) -> Self {
        Self { before: vec![0x1111_1111; words.len()], after: words }
    }
}

struct Shader {
    name: &'static str,
    code: &'static [u8],
    registers: u16,
    shared: u32,
    grid: [u32; 3],
    block: [u32; 3],
    /// What the shader has as push constants.
    words: &'static [u32],
    contents: fn() -> Vec<Contents>,
}

const CODE: u64 = 0x7e00_0000_0000;
/// Buffers lie this far from each other.
const BUFFERS: u64 = 0x7f00_0000_0000;
const APART: u64 = 0x1000_0000;

impl Shader {
    fn launch(&self, buffers: &[u64]) -> Launch {
        let mut bank = vec![0; 256];
        bank[..3].copy_from_slice(&self.block);
        bank[3..6].copy_from_slice(&self.grid);
        let halves = buffers.iter().flat_map(|at| [*at & 0xffff_ffff, *at >> 32]);
        let parameters = halves.map(|half| u32::try_from(half).unwrap()).chain(self.words.iter().copied());
        for (to, word) in bank[0x210 / 4..].iter_mut().zip(parameters) {
            *to = word;
        }
        let mut constants = Constants::default();
        constants.set(0, bank);
        Launch {
            arch: Arch::Sm90,
            entry: CODE,
            registers: self.registers,
            grid: self.grid,
            block: self.block,
            shared: self.shared,
            constants,
            shared_window: 0,
            local_window: 1 << 24,
            local: LocalMemory::default(),
        }
    }
}

const COUNT: u32 = 1024 * 1024;

fn all(of: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..COUNT).map(of).collect()
}

fn vector_add() -> Vec<Contents> {
    let (left, right) = (|index: u32| index.wrapping_mul(2_654_435_761), |index: u32| index ^ 0x5555_5555);
    let sum = all(|index| left(index).wrapping_add(right(index)));
    vec![Contents::read(all(left)), Contents::read(all(right)), Contents::written(sum)]
}

fn saxpy() -> Vec<Contents> {
    const LAST: u32 = COUNT - 77;
    let (x, y) = (|index: u32| (index % 1009) as f32, |index: u32| (index % 503) as f32);
    let sum = |index: u32| if index < LAST { 3.0 * x(index) + y(index) } else { y(index) };
    let result = Contents { before: all(|i| y(i).to_bits()), after: all(|i| sum(i).to_bits()) };
    vec![Contents::read(all(|index| x(index).to_bits())), result]
}

fn matrix_product() -> Vec<Contents> {
    const SIZE: u32 = 512;
    let a = |row: u32, k: u32| ((row + 2 * k) % 7) as f32 - 3.0;
    let b = |k: u32, column: u32| ((3 * k + column) % 5) as f32 - 2.0;
    let square = |of: &dyn Fn(u32, u32) -> f32| -> Vec<u32> {
        (0..SIZE * SIZE).map(|index| of(index / SIZE, index % SIZE).to_bits()).collect()
    };
    // Rows repeat after 7, columns after 5.
    let products: Vec<f32> =
        (0..35).map(|index| (0..SIZE).map(|k| a(index / 5, k) * b(k, index % 5)).sum()).collect();
    let product = square(&|row, column| products[(row % 7 * 5 + column % 5) as usize]);
    vec![Contents::read(square(&a)), Contents::read(square(&b)), Contents::written(product)]
}

fn reduction() -> Vec<Contents> {
    let numbers = all(|index| index.wrapping_mul(2_654_435_761) | 1);
    let sum = numbers.iter().fold(0_u32, |sum, number| sum.wrapping_add(*number));
    let after = vec![sum, *numbers.iter().min().unwrap(), *numbers.iter().max().unwrap(), COUNT / 256];
    vec![Contents::read(numbers), Contents { before: vec![0, u32::MAX, 0, 0], after }]
}

/// Rounds of multiply-adds, as lavapipe's push constants have them, too.
const PEAK_ROUNDS: u32 = 8;

fn peak(index: u32) -> u32 {
    8 * (index % 8) + 28 + 8 * 16 * PEAK_ROUNDS
}

fn peak_fp32() -> Vec<Contents> {
    vec![Contents::written(all(|index| (peak(index) as f32).to_bits()))]
}

fn peak_int32() -> Vec<Contents> {
    vec![Contents::written(all(peak))]
}

macro_rules! shader {
    ($name:ident, $registers:literal, $shared:literal, $grid:expr, $block:expr, $words:expr) => {
        Shader {
            name: stringify!($name),
            code: include_bytes!(concat!("sass/vulkan/", stringify!($name), ".bin")),
            registers: $registers,
            shared: $shared,
            grid: $grid,
            block: $block,
            words: $words,
            contents: $name,
        }
    };
}

const ONE: u32 = 1.0_f32.to_bits();
const LINE: [u32; 3] = [256, 1, 1];
const ALL: [u32; 3] = [COUNT / 256, 1, 1];

/// Shared memory begins behind the system's first KiB.
const SHADERS: [Shader; 6] = [
    shader!(vector_add, 12, 0, ALL, LINE, &[]),
    shader!(saxpy, 12, 0, [COUNT / 128, 1, 1], [128, 1, 1], &[3.0_f32.to_bits(), COUNT - 77]),
    shader!(matrix_product, 32, 3072, [32, 32, 1], [16, 16, 1], &[512]),
    shader!(reduction, 12, 2048, ALL, LINE, &[]),
    shader!(peak_fp32, 24, 0, ALL, LINE, &[ONE, ONE, PEAK_ROUNDS]),
    shader!(peak_int32, 16, 0, ALL, LINE, &[1, 1, PEAK_ROUNDS]),
];

/// Time that processors spent for this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Seconds of the quickest run, and how many instructions of warps it had.
fn measure(shader: &Shader) -> (f64, u64) {
    let contents = (shader.contents)();
    let buffers: Vec<u64> = (0..).map(|index| BUFFERS + APART * index).take(contents.len()).collect();
    let launch = shader.launch(&buffers);
    let mut ram = Ram::default();
    // Buffers come first: they are looked up most.
    for (at, buffer) in buffers.iter().zip(&contents) {
        ram.map(*at, &buffer.before);
    }
    let mut code: Vec<u32> = shader.code.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    code.resize(code.len().next_multiple_of(1024), 0);
    ram.map(CODE, &code);
    let (mut best, mut spent, mut instructions) = (f64::INFINITY, Duration::ZERO, 0);
    for round in 0.. {
        if round >= ROUNDS && spent >= LONGEST {
            break;
        }
        for (at, buffer) in buffers.iter().zip(&contents) {
            ram.fill(*at, &buffer.before);
        }
        let busy = processor_time();
        let grid = Grid::new(launch.clone()).unwrap();
        assert_eq!(grid.run(&ram, &Alone, &|| true), Progress::Done, "{}", shader.name);
        let busy = processor_time() - busy;
        for (at, buffer) in buffers.iter().zip(&contents) {
            let found = ram.words(*at, buffer.after.len(), Access::Read).unwrap();
            let wrong = found
                .iter()
                .zip(&buffer.after)
                .filter(|(word, right)| word.load(Ordering::Relaxed) != **right);
            assert_eq!(wrong.count(), 0, "{}: words are wrong at {at:#x}", shader.name);
        }
        spent += busy;
        best = best.min(busy.as_secs_f64());
        instructions = grid.instructions();
    }
    (best, instructions)
}

fn main() -> ExitCode {
    let mut figures = serde_json::Map::new();
    let only = std::env::args().skip_while(|word| word != "--only").nth(1);
    for shader in SHADERS.iter().filter(|shader| only.as_ref().is_none_or(|name| name == shader.name)) {
        let (seconds, instructions) = measure(shader);
        println!(
            "{:14} {:9.1} us, {:5.1} M instructions of warps/s a core",
            shader.name,
            seconds * 1e6,
            instructions as f64 / seconds / 1e6
        );
        figures.insert(shader.name.to_owned(), ((seconds * 1e9).round() / 1e3).into());
    }
    if std::env::args().any(|word| word == "--json") {
        println!("{}", serde_json::json!({ "ok": true, "below": [], "shaders_us": figures }));
    }
    ExitCode::SUCCESS
}
