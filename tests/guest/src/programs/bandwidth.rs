//! `bandwidth`: the GPU's own time for large copies in each direction, by the engine that ordinary copies
//! use.
//!
//! Several copies in one submission, each a single line, so that neither the trapped submission nor the shape
//! of the copy is what is measured.

use anyhow::{Context, Result, bail};

use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::{Bound, Device, Mapped, Place, Syncobj, UserSpace};
use crate::engine::turing;
use crate::push::Commands;
use crate::stamps::Stamps;
use crate::{pattern, stats};

/// Sizes, by the name of their figures.
const SIZES: [(&str, usize); 2] = [("16m", 16 << 20), ("64m", 64 << 20)];
const LARGEST: usize = 64 << 20;
const COPIES: usize = 4;
const REPEATS: usize = 9;
const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);
/// What is compared at the end; generating it takes an emulated processor a while.
const COMPARED: usize = 16 << 20;

struct Bandwidth {
    channel: Bound,
    stamps: Stamps,
    system: Mapped,
    near: Mapped,
    far: Mapped,
    back: Mapped,
    space: UserSpace,
}

pub fn run(options: &Options) -> Result<Figures> {
    let mut bandwidth = Bandwidth::open(options.gpu()?)?;
    let contents = pattern::bytes(0xba, 0, COMPARED);
    bandwidth.system.0.write(0, &contents)?;
    let mut figures = Figures::new();
    for (label, size) in SIZES {
        let Bandwidth { system, near, far, back, .. } = &bandwidth;
        // In this order the bytes come round.
        let ways =
            [("to_vram", near.1, system.1), ("within_vram", far.1, near.1), ("from_vram", back.1, far.1)];
        for (name, to, from) in ways {
            let speed = bandwidth.measure(to, from, size).with_context(|| format!("{name}, {label}"))?;
            figures.insert(format!("{name}_{label}_gb_s"), speed.into());
        }
    }
    let mut found = vec![0; COMPARED];
    bandwidth.back.0.read(0, &mut found)?;
    match pattern::difference(&found, &contents) {
        Some(difference) => bail!("what came back is wrong: {difference}"),
        None => Ok(figures),
    }
}

impl Bandwidth {
    fn open(gpu: usize) -> Result<Self> {
        let chip = Chip::of(&Device::open(gpu)?)?;
        chip.classes()?;
        let mut space = UserSpace::open(gpu)?;
        Ok(Self {
            channel: space.channel(chip.mover())?,
            stamps: Stamps::new(&mut space)?,
            system: space.mapped(Place::Gart, LARGEST)?,
            near: space.mapped(Place::Vram, LARGEST)?,
            far: space.mapped(Place::Vram, LARGEST)?,
            back: space.mapped(Place::Gart, LARGEST)?,
            space,
        })
    }

    /// Gigabytes per second: the median of the GPU's times.
    fn measure(&mut self, to: u64, from: u64, size: usize) -> Result<f64> {
        let mut copies = Commands::new();
        (0..COPIES).for_each(|_| turing::copy_line(&mut copies, to, from, size as u64));
        let commands = self.stamps.around(self.channel.engine(), 0, &copies);
        let mut nanos = Vec::new();
        for _ in 0..REPEATS {
            let done = Syncobj::new(self.space.device())?;
            self.channel.execute(&commands, &[], &[&done])?;
            done.wait(LIMIT)?;
            let (begin, end) = self.stamps.read(0)?;
            nanos.push(end.saturating_sub(begin));
        }
        nanos.sort_unstable();
        let median = nanos.get(nanos.len() / 2).copied().unwrap_or(0).max(1);
        // Bytes per nanosecond are gigabytes per second.
        Ok(stats::round((COPIES * size) as f64 / median as f64))
    }
}
