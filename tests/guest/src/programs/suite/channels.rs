//! Channels: opened and closed, and many at work.

use anyhow::Result;

use super::Suite;
use crate::chip::Chip;
use crate::drm::{Buffer, Channel, Device, Place};

const SMALL: usize = 4096;
/// Channels at work at a time: half of what a vGPU has where nothing else is said.
const MANY: u32 = 16;

/// A channel until its first commands are done, and its end, in an address space that is there already.
pub fn one(suite: &mut Suite) -> Result<()> {
    let device = Device::open(suite.gpu)?;
    let engine = Chip::of(&device)?.mover();
    // The first channel of an open file makes the address space.
    let _first = Channel::open(&device, engine)?;
    for _ in 0..suite.times(20) {
        let channel = suite.time("channel_open", || {
            let channel = Channel::open(&device, engine)?;
            channel.wait()?;
            Ok(channel)
        })?;
        suite.time("channel_close", || {
            drop(channel);
            Ok(())
        })?;
    }
    Ok(())
}

/// A 4 KiB copy on each of many channels, all under way at once: the time of each.
pub fn many(suite: &mut Suite) -> Result<()> {
    let device = Device::open(suite.gpu)?;
    let engine = Chip::of(&device)?.mover();
    let source = Buffer::new(&device, Place::Gart, SMALL)?;
    let mut channels = (0..MANY)
        .map(|_| Ok((Channel::open(&device, engine)?, Buffer::new(&device, Place::Vram, SMALL)?)))
        .collect::<Result<Vec<_>>>()?;
    let mut round = || -> Result<()> {
        for (channel, target) in &mut channels {
            channel.copy((target, 0), (&source, 0), SMALL)?;
        }
        channels.iter().try_for_each(|(_, target)| target.wait())
    };
    round()?;
    for _ in 0..suite.times(40) {
        suite.time_each("channels_16_4k", MANY, &mut round)?;
    }
    Ok(())
}
