//! A GPU through the NVIDIA driver that is loaded: video memory, a channel that computes, and one that
//! copies.
//!
//! Times are those that the GPU writes beside semaphores. All launches of a run are in the ring when the
//! doorbell is rung, and each waits until the one before has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use gpuvmk_chip::{Chip, Engine};
use gpuvmk_gpu::rm::abi::Handle;
use gpuvmk_gpu::rm::abi::classes::NV01_MEMORY_LOCAL_USER;
use gpuvmk_gpu::rm::abi::flags::{attr, map};
use gpuvmk_gpu::rm::raw::{
    Commands, Device, Doorbell, EngineTable, GRANULE, STAGING, VIDEO_VA, Work, Worker, open_device,
    open_kernel, vram_params,
};
use gpuvmk_gpu::rm::{HostPaths, Timeslice};
use gpuvmk_kernels::launch;
use gpuvmk_papers::reference::mix;
use gpuvmk_papers::{Area, Clocks, Direction, Gpu, Launch, Took, YARD_BYTES, yard};
use gpuvmk_pci::mapping::Mapping;

use super::code::{Code, METHODS_OF_LAUNCH, Pushed};

const MIB: u64 = 1 << 20;

/// Bytes of pinned memory, before which time stamps lie.
pub(super) const PINNED: u64 = 64 * MIB;
const STAMPS: u64 = STAGING;
pub(super) const DATA: u64 = STAGING + MIB;
const ROOM: u64 = MIB + PINNED;

/// Video memory: code, then what launches need, then what yardsticks write, then the programs' memory.
const VIDEO: u64 = 1024 * MIB;
const LAUNCHES: u64 = VIDEO_VA + MIB;
const YARD: u64 = VIDEO_VA + 4 * MIB;
const MEMORY: u64 = VIDEO_VA + 6 * MIB;
const _: () = assert!(YARD + YARD_BYTES as u64 <= MEMORY);

/// Launches in one piece of the ring's commands, which has room for 256 words.
const LAUNCHES_OF_PIECE: usize = 200 / (2 * METHODS_OF_LAUNCH);

/// NVCBC0_INVALIDATE_SHADER_CACHES: instructions, data, constants.
const CACHES: u32 = 1 | 1 << 4 | 1 << 12;

/// Methods, each with its word.
type Methods = Vec<(u16, u32)>;

/// When rounds began and ended, by the GPU's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) begin: Duration,
    pub(super) end: Duration,
}

/// See the module.
pub(crate) struct NativeGpu {
    pub(super) device: Device,
    pub(super) chip: Chip,
    pub(super) doorbell: Arc<Doorbell>,
    pub(super) table: EngineTable,
    pub(super) compute: Worker,
    pub(super) copier: Worker,
    video: Handle,
    code: Code,
    /// What of [`MEMORY`] is in use.
    used: u64,
    clocks: Clocks,
    pub(crate) name: String,
    pub(crate) driver: String,
}

fn outside(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("pinned memory: {error}")
}

/// Where a stamp lies.
const fn stamp(number: u64) -> u64 {
    STAMPS + 16 * number
}

/// The time from a stamp to the next.
fn after(memory: &Mapping, number: u64) -> Result<Duration> {
    let time = |number| memory.read_u64(stamp(number) + 8).map_err(outside);
    Ok(Duration::from_nanos(time(number + 1)?.saturating_sub(time(number)?)))
}

impl NativeGpu {
    /// Opens the GPU as an unprivileged client of its driver.
    pub(crate) fn open(
        paths: &HostPaths,
        gpu: Option<&str>,
        uid: Option<u32>,
        timeslice: Timeslice,
    ) -> Result<Self> {
        let opened = open_kernel(paths, uid)?;
        let (mut device, facts, table, chip) = open_device(&opened.kernel, paths, gpu)?;
        let _ = opened.for_good()?;
        device.timeslice = timeslice;
        let doorbell = Arc::new(device.doorbell(chip)?);
        let mut params = vram_params(VIDEO, attr::PAGE_HUGE, GRANULE);
        let video = device
            .client
            .alloc(device.device, NV01_MEMORY_LOCAL_USER, &mut params)
            .context("Cannot get video memory")?;
        let engine = table.engine_type(Engine::COPY1).context("The GPU has no copy engine")?;
        let compute = Worker::new(&mut device, chip, doorbell.clone(), Work::Compute, ROOM)?;
        let copier = Worker::new(&mut device, chip, doorbell.clone(), Work::Copy(engine), ROOM)?;
        for worker in [&compute, &copier] {
            worker.map_video(&device, video, 0, VIDEO, map::PAGE_2M).context("Cannot map video memory")?;
        }
        let driver = paths.driver().version().unwrap_or_default().to_owned();
        let code = Code::read(VIDEO_VA)?;
        let name = facts.name;
        let clocks = Clocks::default();
        let used = 0;
        let mut gpu =
            Self { device, chip, doorbell, table, compute, copier, video, code, used, clocks, name, driver };
        let bytes = gpu.code.bytes();
        ensure!(bytes.len() as u64 <= LAUNCHES - VIDEO_VA, "{} bytes of code are too many", bytes.len());
        gpu.upload(VIDEO_VA, &bytes)?;
        gpu.compute.run(Commands::default().compute(&launch::set_up()))?;
        Ok(gpu)
    }

    /// Gives everything back.
    pub(crate) fn close(mut self) -> Result<()> {
        for worker in [&self.compute, &self.copier] {
            worker.unmap_video(&self.device, 0, VIDEO)?;
        }
        self.compute.destroy(&mut self.device)?;
        self.copier.destroy(&mut self.device)?;
        Ok(self.device.client.free(self.video)?)
    }

    /// The video memory.
    pub(super) fn video(&self) -> (Handle, u64) {
        (self.video, VIDEO)
    }

    /// Copies bytes to video memory.
    fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()> {
        let size = usize::try_from(PINNED)?;
        for (piece, at) in bytes.chunks(size).zip((to..).step_by(size)) {
            self.copier.system().write(DATA, piece).map_err(outside)?;
            let from = self.copier.system_va(DATA);
            self.copier.run(Commands::default().copy(from, at, u32::try_from(piece.len())?))?;
        }
        Ok(())
    }

    /// Puts what launches need into video memory; the methods that launch them, one after the other.
    pub(super) fn prepare(&mut self, launches: &[Launch]) -> Result<Methods> {
        let Pushed { bytes, methods } = self.code.launches(launches, LAUNCHES)?;
        ensure!(bytes.len() as u64 <= YARD - LAUNCHES, "{} launches are too many", launches.len());
        self.upload(LAUNCHES, &bytes)?;
        Ok(methods)
    }

    /// Queues methods that were prepared.
    fn enqueue(&mut self, methods: &[(u16, u32)]) -> Result<()> {
        for piece in methods.chunks(LAUNCHES_OF_PIECE * METHODS_OF_LAUNCH) {
            self.compute.enqueue(Commands::default().compute(piece))?;
        }
        Ok(())
    }

    /// Queues yardsticks; the methods of one, and of launches that are to come behind them.
    fn queue_yards(&mut self, yards: usize, launches: &[Launch]) -> Result<(Methods, Methods)> {
        let all: Vec<Launch> = std::iter::once(yard(YARD)).chain(launches.iter().cloned()).collect();
        let mut yard = self.prepare(&all)?;
        let programs = yard.split_off(METHODS_OF_LAUNCH.min(yard.len()));
        self.compute.enqueue(Commands::default().compute(&[(launch::INVALIDATE_SHADER_CACHES, CACHES)]))?;
        self.enqueue(&yard.repeat(yards))?;
        Ok((yard, programs))
    }

    /// Runs launches behind yardsticks that get the GPU's clocks up, and between two that are timed.
    pub(super) fn execute(&mut self, launches: &[Launch]) -> Result<Took> {
        let (yard, programs) = self.queue_yards(self.clocks.before(), launches)?;
        let (yard, programs) = (yard.as_slice(), programs.as_slice());
        for (number, methods) in [yard, programs, yard].into_iter().enumerate() {
            let at = self.compute.system_va(stamp(number as u64));
            self.compute.enqueue(Commands::default().release_with_time(at, 1))?;
            self.enqueue(methods)?;
        }
        let last = self.compute.system_va(stamp(3));
        let wall = self.compute.run(Commands::default().release_with_time(last, 1))?;
        let memory = self.compute.system();
        let yards = [after(memory, 0)?, after(memory, 2)?];
        let gpu = after(memory, 1)?;
        let is_up = self.clocks.saw(yards);
        Ok(Took { gpu, wall, yards: Some((yards, is_up)) })
    }

    /// Queues yardsticks, then rounds of launches between two stamps, without a doorbell.
    pub(super) fn queue_rounds(&mut self, yards: usize, launches: &[Launch], rounds: usize) -> Result<()> {
        let (_, programs) = self.queue_yards(yards, launches)?;
        let first = self.compute.system_va(stamp(0));
        self.compute.enqueue(Commands::default().release_with_time(first, 1))?;
        self.enqueue(&programs.repeat(rounds))
    }

    /// Has the GPU run what was queued. When it began the rounds and when it ended, by its clock.
    pub(super) fn run_rounds(&mut self) -> Result<Ran> {
        let last = self.compute.system_va(stamp(1));
        self.compute.run(Commands::default().release_with_time(last, 1))?;
        let time = |number| self.compute.system().read_u64(stamp(number) + 8).map_err(outside);
        Ok(Ran { begin: Duration::from_nanos(time(0)?), end: Duration::from_nanos(time(1)?) })
    }

    /// Has a kernel write a word into pinned memory; the time from the doorbell until it is there.
    pub(super) fn write_word(&mut self, seed: u32) -> Result<Duration> {
        // Another one each time.
        let wanted = mix(seed) % u32::MAX;
        let to = self.compute.system_va(DATA);
        let arguments = vec![to, 1, seed.into(), u32::MAX.into()];
        let write = Launch { kernel: "fill_below", grid: [1; 3], block: [32, 1, 1], arguments };
        let methods = self.prepare(std::slice::from_ref(&write))?;
        self.compute.enqueue(Commands::default().compute(&methods))?;
        let start = Instant::now();
        self.compute.kick();
        self.compute.wait(DATA, wanted)?;
        let took = start.elapsed();
        self.compute.run(&mut Commands::default())?;
        Ok(took)
    }

    /// Copies on a worker's engine so many times; the GPU's time for one, and ours.
    pub(super) fn copies(
        worker: &mut Worker,
        (from, to): (u64, u64),
        bytes: u32,
        times: u32,
    ) -> Result<(Duration, Duration)> {
        let [first, last] = [stamp(0), stamp(1)].map(|at| worker.system_va(at));
        let mut commands = Commands::default();
        commands.release_with_time(first, 1);
        for _ in 0..times {
            commands.copy(from, to, bytes);
        }
        commands.release_with_time(last, 1);
        let wall = worker.run(&mut commands)?;
        Ok((after(worker.system(), 0)? / times.max(1), wall / times.max(1)))
    }
}

impl Gpu for NativeGpu {
    fn allocate(&mut self, bytes: usize) -> Result<Area> {
        let address = MEMORY + self.used;
        self.used += (bytes as u64).next_multiple_of(2 * MIB);
        ensure!(MEMORY + self.used <= VIDEO_VA + VIDEO, "more than {VIDEO} bytes of video memory");
        Ok(Area { address, bytes })
    }

    fn write(&mut self, to: Area, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len() <= to.bytes, "{} bytes for {}", bytes.len(), to.bytes);
        self.upload(to.address, bytes)
    }

    fn read(&mut self, from: Area) -> Result<Vec<u8>> {
        let mut bytes = vec![0; from.bytes];
        let size = usize::try_from(PINNED)?;
        for (piece, at) in bytes.chunks_mut(size).zip((from.address..).step_by(size)) {
            let to = self.copier.system_va(DATA);
            self.copier.run(Commands::default().copy(at, to, u32::try_from(piece.len())?))?;
            self.copier.system().read(DATA, piece).map_err(outside)?;
        }
        Ok(bytes)
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(Duration, Duration)> {
        let took = self.timed(launches)?;
        Ok((took.gpu, took.wall))
    }

    fn timed(&mut self, launches: &[Launch]) -> Result<Took> {
        let start = Instant::now();
        let took = self.execute(launches)?;
        Ok(Took { wall: start.elapsed(), ..took })
    }

    fn transfer(&mut self, area: Area, direction: Direction) -> Result<(Duration, Duration)> {
        ensure!(area.bytes as u64 <= PINNED, "{} bytes of pinned memory are too many", area.bytes);
        let pinned = self.copier.system_va(DATA);
        let bytes = u32::try_from(area.bytes)?;
        let route = match direction {
            Direction::ToDevice => {
                // What is there comes back first, so that what is sent is what was there.
                self.copier.run(Commands::default().copy(area.address, pinned, bytes))?;
                (pinned, area.address)
            }
            Direction::FromDevice => (area.address, pinned),
        };
        Self::copies(&mut self.copier, route, bytes, 1)
    }

    fn release(&mut self) -> Result<()> {
        self.used = 0;
        Ok(())
    }
}
