//! What most programs begin with: a device, a channel, and copies that are verified.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::chip::Chip;
use crate::drm::{Buffer, Channel, Device, Place};
use crate::engine::Engine;
use crate::pattern;

/// How long polling for a fence may take before it counts as lost.
pub const FENCE_LIMIT: Duration = Duration::from_secs(20);

/// Copies GART to VRAM to GART through one channel, with buffers that are reused.
#[derive(Debug)]
pub struct Session {
    pub device: Device,
    pub channel: Channel,
    pub source: Buffer,
    pub vram: Buffer,
    pub target: Buffer,
}

impl Session {
    /// A session on the GPU number `gpu`, by its ordinary engine, with buffers of `size` bytes.
    pub fn open(gpu: usize, size: usize) -> Result<Self> {
        let device = Device::open(gpu)?;
        let engine = Chip::of(&device)?.mover();
        Self::on(&device, engine, size)
    }

    /// A session on an open device.
    pub fn on(device: &Device, engine: Engine, size: usize) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            channel: Channel::open(device, engine)?,
            source: Buffer::new(device, Place::Gart, size)?,
            vram: Buffer::new(device, Place::Vram, size)?,
            target: Buffer::new(device, Place::Gart, size)?,
        })
    }

    /// Copies `length` bytes of the pattern `seed` there and back, and compares every byte.
    ///
    /// Offsets are into source, VRAM and target. Bytes around the target window must stay as they were.
    pub fn there_and_back(&mut self, seed: u32, offsets: [usize; 3], length: usize) -> Result<()> {
        /// Bytes before and after the window that are watched.
        const GUARD: usize = 64;
        const GUARD_BYTE: u8 = 0xee;
        let [from, through, to] = offsets;
        let contents = pattern::bytes(seed, 0, length);
        let before = to.min(GUARD);
        let after = (self.target.size() - to - length).min(GUARD);
        let watched = before + length + after;

        self.source.write(from, &contents)?;
        self.target.write(to - before, &vec![GUARD_BYTE; watched])?;
        self.channel.copy((&self.vram, through), (&self.source, from), length)?;
        self.channel.copy((&self.target, to), (&self.vram, through), length)?;
        self.target.wait()?;

        let mut found = vec![0; watched];
        self.target.read(to - before, &mut found)?;
        let (head, rest) = found.split_at(before);
        let (body, tail) = rest.split_at(length);
        let place = || format!("{length} bytes, offsets {from:#x} -> {through:#x} -> {to:#x}");
        if let Some(difference) = pattern::difference(body, &contents) {
            bail!("copy of {} went wrong: {difference}", place());
        }
        ensure!(
            head.iter().chain(tail).all(|&byte| byte == GUARD_BYTE),
            "copy of {} wrote outside its window: {head:02x?} before it, {tail:02x?} behind it",
            place()
        );
        Ok(())
    }
}

/// The engines that channels of this device can use.
pub fn engines(device: &Device) -> Result<Vec<Engine>> {
    let chip = Chip::of(device)?;
    for &engine in chip.engines() {
        Channel::open(device, engine).with_context(|| format!("{engine:?} is on every {chip}"))?;
    }
    let more = chip.more_engines().iter().copied().filter(|engine| Channel::open(device, *engine).is_ok());
    Ok(chip.engines().iter().copied().chain(more).collect())
}
