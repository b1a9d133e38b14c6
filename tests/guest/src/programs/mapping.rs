//! `mapping`: 4 MiB of VRAM mapped and unmapped again and again, in an address space that a channel uses. The
//! host counts what each costs it; the figure here has the emulated driver's work in it.

use std::time::Instant;

use anyhow::Result;

use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::{Buffer, Device, Place, UserSpace};
use crate::stats;

const SIZE: usize = 4 << 20;

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let chip = Chip::of(&Device::open(gpu)?)?;
    let mut space = UserSpace::open(gpu)?;
    // Tables that no channel uses are of no interest to anybody.
    let _channel = space.channel(chip.mover())?;
    let buffer = Buffer::new(space.device(), Place::Vram, SIZE)?;
    let place = space.reserve(SIZE);
    let (mut maps, mut unmaps) = (Vec::new(), Vec::new());
    for _ in 0..options.get("repeats", 100usize)? {
        let start = Instant::now();
        space.map_at(&buffer, place, None)?;
        maps.push(start.elapsed());
        let start = Instant::now();
        space.unmap(place, SIZE)?;
        unmaps.push(start.elapsed());
    }
    let mut figures = Figures::new();
    figures.insert("map_4m_us_p50".into(), stats::percentile_us(&maps, 50).into());
    figures.insert("unmap_4m_us_p50".into(), stats::percentile_us(&unmaps, 50).into());
    Ok(figures)
}
