//! `evict`: more VRAM buffers than there is VRAM. The kernel moves buffers out and back in by its own
//! channel; every page of every buffer must come back as it was.

use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::abi::Parameter;
use crate::drm::{Buffer, Channel, Device, Place};
use crate::pattern;

const PAGE: usize = 4096;
const BUFFER: usize = 4 << 20;

pub fn run(options: &Options) -> Result<Figures> {
    let device = Device::open(options.gpu()?)?;
    let vram = usize::try_from(device.parameter(Parameter::VramSize)?)?;
    let count = how_many(vram, available_memory()?)?;
    let mut channel = Channel::open(&device, Chip::of(&device)?.mover())?;
    let mut staging = Buffer::new(&device, Place::Gart, BUFFER)?;
    let base = pattern::bytes(0xe71c, 0, BUFFER);

    let mut buffers = Vec::new();
    staging.write(0, &base)?;
    for number in 0..count {
        let buffer = Buffer::new(&device, Place::Vram, BUFFER)
            .with_context(|| format!("buffer {number} of {count}"))?;
        for page in 0..BUFFER / PAGE {
            staging.write(page * PAGE, &stamp(number, page))?;
        }
        channel.copy((&buffer, 0), (&staging, 0), BUFFER)?;
        staging.wait()?;
        buffers.push(buffer);
    }
    let mut found = vec![0; BUFFER];
    let mut wanted = base;
    for (number, buffer) in buffers.iter().enumerate() {
        channel.copy((&staging, 0), (buffer, 0), BUFFER)?;
        staging.wait()?;
        staging.read(0, &mut found)?;
        for (page, bytes) in wanted.chunks_exact_mut(PAGE).enumerate() {
            if let Some(start) = bytes.first_chunk_mut() {
                *start = stamp(number, page);
            }
        }
        if let Some(difference) = pattern::difference(&found, &wanted) {
            bail!("buffer {number} of {count} came back changed: {difference}");
        }
    }

    let mut figures = Figures::new();
    figures.insert("vram_mib".into(), (vram >> 20).into());
    figures.insert("buffers".into(), count.into());
    figures.insert("buffers_mib".into(), ((count * BUFFER) >> 20).into());
    Ok(figures)
}

/// What each page of each buffer begins with: no two are alike.
fn stamp(number: usize, page: usize) -> [u8; 16] {
    let [mut first, second] = [number, page].map(|value| (value as u64).to_le_bytes());
    first[7] = 0x5a;
    let mut stamp = [0; 16];
    stamp[..8].copy_from_slice(&first);
    stamp[8..].copy_from_slice(&second);
    stamp
}

/// Half as many buffers again as fit, as far as there is memory for those that are moved out.
fn how_many(vram: usize, memory: usize) -> Result<usize> {
    let overflow = (vram / 2).min(memory / 2);
    ensure!(
        overflow >= 4 * BUFFER,
        "{} MiB of VRAM and {} MiB of free memory are too little to evict anything",
        vram >> 20,
        memory >> 20
    );
    Ok((vram + overflow) / BUFFER)
}

/// Bytes that programs can still have.
pub fn available_memory() -> Result<usize> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("no MemAvailable")?;
    let kib: usize = line.trim().trim_end_matches(" kB").parse().context("MemAvailable is no number")?;
    Ok(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_more_than_vram_and_fit_into_memory() {
        assert_eq!(how_many(256 << 20, 400 << 20).unwrap(), 96);
        assert_eq!(how_many(256 << 20, 128 << 20).unwrap(), 80);
        assert!(how_many(256 << 20, 8 << 20).is_err());
    }

    #[test]
    fn stamps_tell_buffers_and_pages_apart() {
        assert_ne!(stamp(1, 0), stamp(0, 1));
        assert_ne!(stamp(0, 0), [0; 16]);
    }
}
