//! A software GPU in this process: shader processors and memory, no channels.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use gpuvmk_shader::cubin::{Cubin, Placed};
use gpuvmk_shader::memory::{Areas, words_of};
use gpuvmk_sm::{Constants, Grid, LocalMemory, Progress, Started};

use crate::CUBIN;
use crate::gpu::{Area, Direction, Gpu, Launch};

/// Where generic addresses of shared and of local memory begin.
const SHARED_WINDOW: u64 = 0x7294_0000_0000;
const LOCAL_WINDOW: u64 = 0x7293_0000_0000;

/// Bytes of local memory, for the stacks of blocks that run.
const LOCAL_SIZE: usize = 2 << 20;

/// What memory holds that nobody has written: no number.
const NOTHING: u32 = 0x7fc5_a5a5;

/// The GPU.
#[derive(Debug)]
pub struct SoftGpu {
    cubin: Cubin,
    areas: Areas,
    local: u64,
    instructions: u64,
}

impl SoftGpu {
    /// One with no memory in use.
    ///
    /// # Errors
    /// The programs' machine code cannot be read.
    pub fn new() -> Result<Self> {
        let cubin = Cubin::read(CUBIN).context("the programs' machine code")?;
        let mut areas = Areas::default();
        let local = areas.add(&vec![0; LOCAL_SIZE / 4], true);
        Ok(Self { cubin, areas, local, instructions: 0 })
    }

    /// Instructions that warps have executed.
    #[must_use]
    pub const fn instructions(&self) -> u64 {
        self.instructions
    }

    fn launch(&mut self, launch: &Launch) -> Result<()> {
        let kernel = self.cubin.kernel(launch.kernel)?;
        let (grid, block) = (launch.grid, launch.block);
        let arguments =
            kernel.arguments(&launch.arguments).context("arguments that the kernel does not take")?;
        let placed = Placed { grid, block, variables: 0, local_window: LOCAL_WINDOW, arguments: &arguments };
        let mut constants = Constants::default();
        for (number, bank) in kernel.banks(&placed) {
            constants.set(number, words_of(&bank));
        }
        let launch = gpuvmk_sm::Launch {
            arch: self.cubin.arch,
            entry: self.areas.add_code(&kernel.code),
            registers: kernel.registers,
            grid,
            block,
            shared: kernel.shared,
            constants,
            shared_window: SHARED_WINDOW,
            local_window: LOCAL_WINDOW,
            local: LocalMemory {
                base: self.local,
                size: LOCAL_SIZE as u64,
                low: 0,
                high: kernel.stack_room(),
            },
        };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let grid = Grid::new(launch)?;
        match grid.run(&self.areas, &Started(workers), &|| true) {
            Progress::Done => {}
            Progress::Paused => bail!("{} paused", kernel.name),
            Progress::Faulted(fault) => bail!("{} stopped: {fault}", kernel.name),
        }
        self.instructions += grid.instructions();
        Ok(())
    }
}

impl Gpu for SoftGpu {
    fn allocate(&mut self, bytes: usize) -> Result<Area> {
        let words = vec![NOTHING; bytes.div_ceil(4)];
        Ok(Area { address: self.areas.add(&words, true), bytes })
    }

    fn write(&mut self, to: Area, bytes: &[u8]) -> Result<()> {
        ensure!(bytes.len() <= to.bytes && self.areas.put(to.address, bytes), "bytes for no memory");
        Ok(())
    }

    fn read(&mut self, from: Area) -> Result<Vec<u8>> {
        self.areas.part(from.address, from.bytes).context("bytes of no memory")
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(Duration, Duration)> {
        let start = Instant::now();
        for launch in launches {
            self.launch(launch).with_context(|| launch.kernel.to_owned())?;
        }
        Ok((start.elapsed(), start.elapsed()))
    }

    fn transfer(&mut self, area: Area, direction: Direction) -> Result<(Duration, Duration)> {
        let start = Instant::now();
        let bytes = self.read(area)?;
        if direction == Direction::ToDevice {
            self.write(area, &bytes)?;
        }
        Ok((start.elapsed(), start.elapsed()))
    }

    fn release(&mut self) -> Result<()> {
        *self = Self { instructions: self.instructions, ..Self::new()? };
        Ok(())
    }
}
