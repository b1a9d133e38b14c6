//! Eviction: work on a buffer that the kernel has moved out of VRAM, for which another must leave.

use anyhow::{Context, Result, ensure};

use super::Suite;
use crate::chip::Chip;
use crate::drm::abi::Parameter;
use crate::drm::{Buffer, Channel, Device, Place};
use crate::programs::evict::available_memory;

const BUFFER: usize = 4 << 20;
const SMALL: usize = 4096;
/// Buffers more than fit into VRAM.
const TOO_MANY: usize = 32;

/// The kernel takes what was used longest ago: going round, each buffer is out when its turn comes.
pub fn run(suite: &mut Suite) -> Result<()> {
    let device = Device::open(suite.gpu)?;
    let vram = usize::try_from(device.parameter(Parameter::VramSize)?)?;
    let memory = available_memory()?;
    ensure!(memory > 3 * TOO_MANY * BUFFER, "{} MiB of free memory are too little", memory >> 20);
    let mut channel = Channel::open(&device, Chip::of(&device)?.mover())?;
    let source = Buffer::new(&device, Place::Gart, SMALL)?;
    let count = vram / BUFFER + TOO_MANY;
    let buffers = (0..count)
        .map(|number| {
            Buffer::new(&device, Place::Vram, BUFFER)
                .with_context(|| format!("buffer {number} of {count} for eviction"))
        })
        .collect::<Result<Vec<_>>>()?;
    for buffer in buffers.iter().take(suite.times(TOO_MANY)) {
        suite.time("evict_4m", || {
            channel.copy((buffer, 0), (&source, 0), SMALL)?;
            buffer.wait()
        })?;
    }
    Ok(())
}
