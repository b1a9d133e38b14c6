//! Compute kernels: a graphics channel with the compute class, the kernels' code, and launches by the newer
//! interface.
//!
//! Data goes the way that drivers send it: system memory, a copy by the channel's own copy engine, VRAM, the
//! kernel, and back.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_kernels::launch::{self, Parameters, Place as Places, Size3};
use gpuvmk_kernels::{CODE_ALIGNMENT, Kernel, Kernels, qmd};

use crate::chip::{Chip, Launch};
use crate::drm::{Bound, Device, Mapped, Place, Syncobj, UserSpace};
use crate::engine::{Engine, turing};
use crate::pattern;
use crate::push::{Commands, Subchannel};
use crate::stamps::Stamps;

/// Where the compute class is bound, as Mesa's drivers do.
const COMPUTE: Subchannel = Subchannel(1);
/// Code ends well before this: processors fetch ahead of what they execute.
const CODE: usize = 64 << 10;
/// Constants first, then the queue meta data.
const DESCRIPTION: usize = 4096;
const QMD: usize = 2048;
/// How long work may take.
const LIMIT: Duration = Duration::from_secs(20);

/// A channel that launches kernels.
#[derive(Debug)]
pub struct Compute {
    channel: Bound,
    launch: Launch,
    kernels: &'static Kernels,
    code: Mapped,
    description: Mapped,
    stamps: Stamps,
    staging: Mapped,
    // Behind everything that lies in it.
    space: UserSpace,
}

impl Compute {
    /// Opens a channel on the GPU number `gpu`, for these kernels; transfers may have up to `largest` bytes.
    pub fn open(gpu: usize, kernels: &'static Kernels, largest: usize) -> Result<Self> {
        let classes = Chip::of(&Device::open(gpu)?)?.classes()?;
        let mut space = UserSpace::open(gpu)?;
        let channel = space.channel(Engine::GraphicsCopy)?;
        let mut set_up = channel.object(COMPUTE, classes.compute)?;
        for (method, data) in launch::set_up() {
            set_up.methods(COMPUTE, method.into(), &[data]);
        }
        let mut compute = Self {
            channel,
            launch: classes.launch,
            kernels,
            code: space.mapped(Place::Vram, CODE)?,
            description: space.mapped(Place::Vram, DESCRIPTION)?,
            stamps: Stamps::new(&mut space)?,
            staging: space.mapped(Place::Gart, largest)?,
            space,
        };
        for kernel in kernels.all() {
            compute.code.0.write(code_offset(kernels, kernel)?, kernel.code).context("placing code")?;
        }
        compute.execute(&set_up).context("setting the compute class up")?;
        Ok(compute)
    }

    /// Has the code of a kernel be words that are no instructions.
    pub fn spoil(&mut self, kernel: &Kernel) -> Result<()> {
        let nothing = vec![0xff; kernel.code.len()];
        self.code.0.write(code_offset(self.kernels, kernel)?, &nothing).context("placing what is no code")
    }

    /// VRAM for a kernel.
    pub fn buffer(&mut self, size: usize) -> Result<Mapped> {
        self.space.mapped(Place::Vram, size)
    }

    /// Writes to VRAM, through system memory and the copy engine.
    pub fn write(&mut self, to: &Mapped, contents: &[u8]) -> Result<()> {
        self.staging.0.write(0, contents)?;
        self.copy(to.1, self.staging.1, contents.len())
    }

    /// Reads from VRAM, likewise.
    pub fn read(&mut self, from: &Mapped, length: usize) -> Result<Vec<u8>> {
        // What a copy that does not happen leaves is no result.
        self.staging.0.write(0, &pattern::bytes(0xdead, 0, length))?;
        self.copy(self.staging.1, from.1, length)?;
        let mut contents = vec![0; length];
        self.staging.0.read(0, &mut contents)?;
        Ok(contents)
    }

    /// Runs a kernel to its end; returns the GPU's own time for it.
    pub fn run(
        &mut self,
        kernel: &Kernel,
        grid: Size3,
        block: Size3,
        parameters: &Parameters,
    ) -> Result<Duration> {
        let launch = self.prepare(kernel, grid, block, parameters)?;
        let commands = self.stamps.around(self.channel.engine(), 0, &launch);
        self.execute(&commands).with_context(|| kernel.name.to_owned())?;
        let (begin, end) = self.stamps.read(0)?;
        Ok(Duration::from_nanos(end.saturating_sub(begin)))
    }

    /// Describes a launch in memory; returns the commands that make it. Good until the next launch is
    /// described.
    pub fn prepare(
        &mut self,
        kernel: &Kernel,
        grid: Size3,
        block: Size3,
        parameters: &Parameters,
    ) -> Result<Commands> {
        let place = Places {
            code: self.code.1 + code_offset(self.kernels, kernel)? as u64,
            constants: self.description.1,
            qmd: self.description.1 + QMD as u64,
        };
        let launch = match launch::launch(kernel, place, grid, block, parameters.bytes()) {
            Ok(launch) => launch,
            Err(error) => bail!("{} cannot be launched: {error:?}", kernel.name),
        };
        ensure!(launch.constants.len() <= QMD, "the constants do not fit");
        let words: Vec<u8> = launch.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.description.0.write(0, &launch.constants)?;
        self.description.0.write(QMD, &words)?;
        let mut commands = Commands::new();
        turing::launch(&mut commands, COMPUTE, self.launch, place.qmd);
        Ok(commands)
    }

    /// The device, the channel and its time stamps, for work that is not waited for at once.
    pub fn parts(&mut self) -> (&Device, &mut Bound, &mut Stamps) {
        (self.space.device(), &mut self.channel, &mut self.stamps)
    }

    fn copy(&mut self, to: u64, from: u64, length: usize) -> Result<()> {
        ensure!(length <= self.staging.0.size(), "{length} bytes are more than a transfer may have");
        let mut commands = Commands::new();
        self.channel.engine().copy(&mut commands, to, from, length as u64);
        self.execute(&commands).context("a transfer")
    }

    fn execute(&mut self, commands: &Commands) -> Result<()> {
        let done = Syncobj::new(self.space.device())?;
        self.channel.execute(commands, &[], &[&done])?;
        done.wait(LIMIT)
    }
}

/// Where a kernel lies in the code buffer: one behind the other, each aligned.
fn code_offset(kernels: &Kernels, wanted: &Kernel) -> Result<usize> {
    let alignment = usize::try_from(CODE_ALIGNMENT)?;
    let mut offset = 0usize;
    for kernel in kernels.all() {
        if kernel.name == wanted.name {
            ensure!(offset + kernel.code.len() <= CODE / 2, "the code does not fit");
            return Ok(offset);
        }
        offset += kernel.code.len().next_multiple_of(alignment);
    }
    bail!("there is no kernel {}", wanted.name)
}

const _: () = assert!((QMD as u64).is_multiple_of(qmd::ALIGNMENT) && QMD + qmd::MAX_WORDS * 4 <= DESCRIPTION);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_lie_apart_and_aligned() {
        for kernels in gpuvmk_kernels::ALL {
            let mut end = 0;
            for kernel in kernels.all() {
                let offset = code_offset(kernels, kernel).unwrap();
                assert!(offset >= end && offset.is_multiple_of(256), "{}", kernel.name);
                end = offset + kernel.code.len();
            }
            assert!(end <= CODE / 2);
        }
    }
}
