//! What a program needs of a GPU.

use std::time::Duration;

use anyhow::Result;

/// Memory of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where the GPU has it.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
}

impl Area {
    /// A part of it, cut off at its end.
    #[must_use]
    pub fn part(self, at: usize, bytes: usize) -> Self {
        let at = at.min(self.bytes);
        Self { address: self.address.saturating_add(at as u64), bytes: bytes.min(self.bytes - at) }
    }
}

/// A kernel with grid, block and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its name in the machine code.
    pub kernel: &'static str,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of one.
    pub block: [u32; 3],
    /// Arguments: addresses, and words of 32 bits in the lower half.
    pub arguments: Vec<u64>,
}

/// A copy between pinned memory of the processor and memory of the GPU, or inside of the latter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the processor's memory.
    ToDevice,
    /// Into the processor's memory.
    FromDevice,
}

/// How long launches took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// By the GPU's own clock.
    pub gpu: Duration,
    /// By the processor's, from the first launch to the end of the last.
    pub wall: Duration,
    /// What yardsticks directly before and after took by the GPU's clock, and whether its clocks were up.
    pub yards: Option<([Duration; 2], bool)>,
}

/// A GPU that programs run on.
pub trait Gpu {
    /// Memory, whose contents are not known.
    ///
    /// # Errors
    /// There is not enough.
    fn allocate(&mut self, bytes: usize) -> Result<Area>;

    /// Puts bytes there, from memory of any kind.
    ///
    /// # Errors
    /// They do not fit, or the GPU failed.
    fn write(&mut self, to: Area, bytes: &[u8]) -> Result<()>;

    /// What is there.
    ///
    /// # Errors
    /// The GPU failed.
    fn read(&mut self, from: Area) -> Result<Vec<u8>>;

    /// Launches kernels one after the other; each begins when the one before has ended. How long that took by
    /// the GPU's own clock, and by the processor's from the first launch to the end of the last.
    ///
    /// # Errors
    /// There is no such kernel, or one failed.
    fn run(&mut self, launches: &[Launch]) -> Result<(Duration, Duration)>;

    /// The same with the GPU's clocks up, where it has such.
    ///
    /// # Errors
    /// As [`Gpu::run`].
    fn timed(&mut self, launches: &[Launch]) -> Result<Took> {
        let (gpu, wall) = self.run(launches)?;
        Ok(Took { gpu, wall, yards: None })
    }

    /// Copies by an engine between an area and pinned memory of as many bytes, which this keeps; by both
    /// clocks.
    ///
    /// # Errors
    /// There is not enough memory, or the GPU failed.
    fn transfer(&mut self, area: Area, direction: Direction) -> Result<(Duration, Duration)>;

    /// Gives all areas back.
    ///
    /// # Errors
    /// The GPU failed.
    fn release(&mut self) -> Result<()>;
}
