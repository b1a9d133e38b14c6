//! What a guest's grids cost on the executor, with a queue, page tables and the engine's threads between:
//! `cargo bench -p gpuvmk-softgpu --bench launches [-- --json]`, part of `cargo xtask bench shader`.

#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::print_stdout, reason = "a benchmark")]

use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram};
use gpuvmk_chip::gh100::methods::{CLASS_COMPUTE, CLASS_COPY, copy, host};
use gpuvmk_gpu::{ChannelSpec, GpuDriver, GpuDriverExt, HostMapping, HostTarget};
use gpuvmk_kernels::launch::{self, Parameters, Place, Size3};
use gpuvmk_kernels::{Kernel, SM90};
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping};
use gpuvmk_softgpu::Workers;
use gpuvmk_softgpu::executor::{Executor, ExecutorConfig};

/// Places in tenant VRAM, which the address space shows from 0 on.
const RING: u64 = 0x1000;
const USERD: u64 = 0x2000;
const REPORT: u64 = 0x3000;
const PUSH: u64 = 0x1_0000;
const CODE: u64 = 0x2_0000;
const CONSTANTS: u64 = 0x3_0000;
const QMD: u64 = 0x4_0000;
const ARRAYS: [u64; 3] = [0x100_0000, 0x180_0000, 0x200_0000];

const VRAM: u64 = 80 << 20;
const RING_ENTRIES_LOG2: u8 = 9;

/// Subchannels of the two classes.
const COMPUTE: u32 = 1;
const COPY: u32 = 4;

/// Words of a vector.
const COUNT: u32 = 1024 * 1024;

/// An end at once.
const EMPTY: Kernel = Kernel {
    name: "empty",
    code: include_bytes!("../sm/benches/sass/empty.bin"),
    constants: SM90.spin.target.parameters,
    ..SM90.spin
};

/// What a launch may cost more than a copy.
const MOST_OVER_COPY: f64 = 10.0;

/// Pairs of a copy and a launch.
const PAIRS: usize = 3000;

/// Vector sums of each number of workers.
const SUMS: usize = 8;

/// A channel of an executor.
struct Guest {
    gpu: Executor,
    vram: Mapping,
    channel: HostChannel,
    put: u32,
    report: u32,
}

fn methods(subchannel: u32, method: u16, data: &[u32]) -> Vec<u32> {
    let count = u32::try_from(data.len()).unwrap();
    let mut words = vec![1 << 29 | count << 16 | subchannel << 13 | u32::from(method) >> 2];
    words.extend(data);
    words
}

/// Time that processors spent for this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

impl Guest {
    fn new(workers: Workers) -> Self {
        let mut gpu = Executor::new(ExecutorConfig { vram: VRAM, workers }).unwrap();
        let (start, size) = (gpu.info().tenant_vram, gpu.info().tenant_vram_size);
        let shared = gpu.share_vram(start, size).unwrap();
        let pieces: Vec<_> = shared
            .iter()
            .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
            .collect();
        let vram = Mapping::contiguous(&pieces, Access::ReadWrite).unwrap();
        let space = gpu.create_space().unwrap();
        let pages = u32::try_from(size >> 21).unwrap();
        let target = HostTarget::Vram(start);
        let all = HostMapping { va: GpuVa(0), pages, page_shift: 21, target, read_only: false, kind: 0 };
        gpu.update_space(space, &[], &[all], 1 << 20).unwrap();
        let spec = ChannelSpec {
            context_of: None,
            space,
            gpfifo: GpuVa(RING),
            gpfifo_entries_log2: RING_ENTRIES_LOG2,
            userd: HostVram(start.0 + USERD),
            engines: EngineSet::GRAPHICS | EngineSet::COPY0,
        };
        let channel = gpu.create_channel(spec).unwrap();
        gpu.enable_channel(channel, true).unwrap();
        gpu.commit_runlist(&[channel]).unwrap();
        let mut guest = Self { gpu, vram, channel, put: 0, report: 0 };
        let mut words = methods(COMPUTE, host::SET_OBJECT, &[u32::from(CLASS_COMPUTE)]);
        words.extend(methods(COPY, host::SET_OBJECT, &[u32::from(CLASS_COPY)]));
        for (method, data) in launch::set_up() {
            words.extend(methods(COMPUTE, method, &[data]));
        }
        guest.run(&words, None);
        guest
    }

    /// Submits methods and a release, and says how long it took until the release was seen.
    fn run(&mut self, words: &[u32], look_each: Option<Duration>) -> Duration {
        self.report += 1;
        let report = u32::try_from(REPORT).unwrap();
        let mut words = words.to_vec();
        words.extend(methods(COMPUTE, host::SEM_ADDR_LO, &[report, 0, self.report, 0, 1]));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.vram.write(PUSH, &bytes).unwrap();
        let entry = PUSH | (words.len() as u64) << 42;
        self.vram.write(RING + u64::from(self.put) * 8, &entry.to_le_bytes()).unwrap();
        self.put = (self.put + 1) % (1 << RING_ENTRIES_LOG2);
        self.vram.write(USERD + 0x8c, &self.put.to_le_bytes()).unwrap();
        let began = Instant::now();
        self.gpu.doorbell(self.channel).unwrap();
        let mut seen = [0; 4];
        while u32::from_le_bytes(seen) != self.report {
            assert!(began.elapsed() < Duration::from_secs(60), "no release");
            match look_each {
                Some(time) => std::thread::sleep(time),
                None => std::hint::spin_loop(),
            }
            self.vram.read(REPORT, &mut seen).unwrap();
        }
        began.elapsed()
    }

    /// Puts a launch into memory. Gives the methods that make it.
    fn place(&self, kernel: &Kernel, grid: u32, block: u32, parameters: &Parameters) -> Vec<u32> {
        let place = Place { code: CODE, constants: CONSTANTS, qmd: QMD };
        let (grid, block) = (Size3(grid, 1, 1), Size3(block, 1, 1));
        let launch = launch::launch(kernel, place, grid, block, parameters.bytes()).unwrap();
        let qmd: Vec<u8> = launch.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.vram.write(CODE, kernel.code).unwrap();
        self.vram.write(CONSTANTS, &launch.constants).unwrap();
        self.vram.write(QMD, &qmd).unwrap();
        launch.methods.iter().flat_map(|(method, data)| methods(COMPUTE, *method, &[*data])).collect()
    }
}

/// The middle one.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// Microseconds of a copy of 4 KiB and of an empty grid, each from its doorbell to its release.
fn submissions() -> [f64; 2] {
    let mut guest = Guest::new(Workers::ONE);
    let launch = guest.place(&EMPTY, 1, 32, &Parameters::default());
    let [from, to, _] = ARRAYS.map(|at| u32::try_from(at).unwrap());
    let mut copying = methods(COPY, copy::OFFSET_IN_UPPER, &[0, from, 0, to, 4096, 4096, 4096, 1]);
    copying.extend(methods(COPY, copy::LAUNCH_DMA, &[0x386]));
    let (mut copies, mut launches) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        copies.push(guest.run(&copying, None));
        launches.push(guest.run(&launch, None));
    }
    [median(copies), median(launches)]
}

/// Bytes that a vector sum moves, a second of processor time and of the clock: of the fastest run.
fn vector_sum(workers: Workers) -> [f64; 2] {
    let mut guest = Guest::new(workers);
    let parameters = ARRAYS.into_iter().fold(Parameters::default(), Parameters::pointer).word(COUNT);
    let launch = guest.place(&SM90.vector_add, COUNT / 256, 256, &parameters);
    let ones: Vec<u8> = (0..COUNT).flat_map(|_| 1.0_f32.to_le_bytes()).collect();
    guest.vram.write(ARRAYS[0], &ones).unwrap();
    guest.vram.write(ARRAYS[1], &ones).unwrap();
    let mut best = [0.0_f64; 2];
    for _ in 0..SUMS {
        let busy = processor_time();
        let clock = guest.run(&launch, Some(Duration::from_micros(200)));
        let busy = processor_time() - busy;
        let rates = [busy, clock].map(|time| 12.0 * f64::from(COUNT) / time.as_secs_f64());
        best = [best[0].max(rates[0]), best[1].max(rates[1])];
    }
    let mut last = [0; 4];
    guest.vram.read(ARRAYS[2] + u64::from(COUNT - 1) * 4, &mut last).unwrap();
    assert_eq!(f32::from_le_bytes(last).to_bits(), 2.0_f32.to_bits(), "a wrong sum");
    best
}

fn short(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn main() -> ExitCode {
    let [copy, launch] = submissions();
    println!("4 KiB copied: {copy:.1} us; an empty grid: {launch:.1} us, from doorbell to release");
    let [alone, _] = vector_sum(Workers::ONE);
    let both = Workers::new(2).unwrap_or(Workers::ONE);
    let [each, together] = vector_sum(both);
    println!(
        "vector sum through page tables: {:.3} GB/s a core, {:.3} of each of two, {:.3} in all",
        alone / 1e9,
        each / 1e9,
        together / 1e9
    );
    let over = launch - copy;
    let ok = over <= MOST_OVER_COPY;
    if !ok {
        println!("A launch costs more than {MOST_OVER_COPY} us above a copy");
    }
    if std::env::args().any(|word| word == "--json") {
        let figures = serde_json::json!({
            "ok": ok,
            "below": if ok { vec![] } else { vec!["launch over copy"] },
            "copy_us": short(copy),
            "launch_us": short(launch),
            "launch_over_copy_us": short(over),
            "guest_vector_sum_bytes_per_s": alone.round(),
            "guest_vector_sum_bytes_per_s_all": together.round(),
            "guest_scaling": short(each / alone),
        });
        println!("{figures}");
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
