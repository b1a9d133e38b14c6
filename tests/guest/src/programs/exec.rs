//! `exec`: the newer interface (`VM_BIND`, `EXEC`, syncobjs), as NVK uses it: copies at addresses of this
//! program's choice, mappings made asynchronously, moved and taken away, every byte compared.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::{Bound, Buffer, Device, Place, Syncobj, UserSpace};
use crate::push::Commands;
use crate::{pattern, stats};

const BUFFER: usize = 4 << 20;
const SMALL: usize = 4096;
const LIMIT: Duration = Duration::from_secs(20);
const SUBMISSIONS: u32 = 200;
const REMAPS: u32 = 20;
const LENGTHS: [usize; 5] = [1, 4096, 65_537, (1 << 20) + 4100, BUFFER];

/// Copies source to VRAM to target, all at addresses that this program chose.
struct Space {
    space: UserSpace,
    channel: Bound,
    source: (Buffer, u64),
    vram: (Buffer, u64),
    target: (Buffer, u64),
}

pub fn run(options: &Options) -> Result<Figures> {
    let mut figures = Figures::new();
    let mut names = Vec::new();
    let chip = Chip::of(&Device::open(options.gpu()?)?)?;
    for &engine in chip.engines() {
        names.push(format!("{engine:?}"));
        let mut space = UserSpace::open(options.gpu()?)?;
        let channel = space.channel(engine)?;
        let mut session = Space::new(space, channel)?;
        for (seed, length) in (0..).zip(LENGTHS) {
            session.there_and_back(seed, length).with_context(|| format!("{engine:?}, {length} bytes"))?;
        }
        session.asynchronous_map().with_context(|| format!("{engine:?}, a mapping made asynchronously"))?;
        let moves = session.moves().with_context(|| format!("{engine:?}, a mapping that moves"))?;
        if engine == chip.mover() {
            let times = session.submissions()?;
            figures.insert("exec_us_p50".into(), stats::percentile_us(&times, 50).into());
            figures.insert("exec_us_p90".into(), stats::percentile_us(&times, 90).into());
            figures.insert("rebind_4m_us_p50".into(), stats::percentile_us(&moves, 50).into());
        }
    }
    figures.insert("engines".into(), names.into());
    Ok(figures)
}

impl Space {
    fn new(mut space: UserSpace, channel: Bound) -> Result<Self> {
        let mut mapped = |place| -> Result<(Buffer, u64)> {
            let buffer = Buffer::new(space.device(), place, BUFFER)?;
            let address = space.map(&buffer)?;
            Ok((buffer, address))
        };
        let (source, vram, target) = (mapped(Place::Gart)?, mapped(Place::Vram)?, mapped(Place::Gart)?);
        Ok(Self { space, channel, source, vram, target })
    }

    /// Two submissions, the second of which waits for the first.
    fn there_and_back(&mut self, seed: u32, length: usize) -> Result<()> {
        let contents = pattern::bytes(seed, 0, length);
        self.source.0.write(0, &contents)?;
        let halfway = Syncobj::new(self.space.device())?;
        self.copy(self.vram.1, self.source.1, length, &[], &[&halfway])?;
        self.back(self.vram.1, length, &halfway, &contents)
    }

    /// Copies `length` bytes at `from` to the target once `after` is signalled, and compares them.
    fn back(&mut self, from: u64, length: usize, after: &Syncobj, contents: &[u8]) -> Result<()> {
        let done = Syncobj::new(self.space.device())?;
        self.target.0.write(0, &vec![0; length])?;
        self.copy(self.target.1, from, length, &[after], &[&done])?;
        done.wait(LIMIT)?;
        let mut found = vec![0; length];
        self.target.0.read(0, &mut found)?;
        match pattern::difference(&found, contents) {
            Some(difference) => bail!("copy by EXEC went wrong: {difference}"),
            None => Ok(()),
        }
    }

    fn copy(
        &mut self,
        to: u64,
        from: u64,
        length: usize,
        after: &[&Syncobj],
        then: &[&Syncobj],
    ) -> Result<()> {
        let mut commands = Commands::new();
        self.channel.engine().copy(&mut commands, to, from, length as u64);
        self.channel.execute(&commands, after, then)
    }

    /// A second mapping of VRAM, made asynchronously: the copy through it waits for it.
    fn asynchronous_map(&mut self) -> Result<()> {
        let contents = pattern::bytes(0xb1d, 0, BUFFER);
        self.source.0.write(0, &contents)?;
        let (mapped, copied) = (Syncobj::new(self.space.device())?, Syncobj::new(self.space.device())?);
        let second = self.space.reserve(BUFFER);
        self.space.map_at(&self.vram.0, second, Some(&mapped))?;
        self.copy(second, self.source.1, BUFFER, &[&mapped], &[&copied])?;
        // Through the first mapping: both are one memory.
        self.back(self.vram.1, BUFFER, &copied, &contents)?;
        self.space.unmap(second, BUFFER)
    }

    /// One address shows one buffer after the other. Returns how long each change took.
    fn moves(&mut self) -> Result<Vec<Duration>> {
        let place = self.space.reserve(BUFFER);
        let others: Vec<Buffer> =
            (0..2).map(|_| Buffer::new(self.space.device(), Place::Vram, BUFFER)).collect::<Result<_>>()?;
        let mut times = Vec::new();
        for turn in 0..REMAPS {
            let buffer = others.iter().cycle().nth(turn as usize).context("there is no buffer")?;
            let start = Instant::now();
            if turn > 0 {
                self.space.unmap(place, BUFFER)?;
            }
            self.space.map_at(buffer, place, None)?;
            times.push(start.elapsed());
            let contents = pattern::bytes(turn, 0, SMALL);
            self.source.0.write(0, &contents)?;
            let copied = Syncobj::new(self.space.device())?;
            if turn >= 2 {
                // What this buffer got two turns ago is still there: the address did not show the other one.
                let before = pattern::bytes(turn - 2, 0, SMALL);
                let none = Syncobj::new(self.space.device())?;
                self.copy(self.vram.1, place, SMALL, &[], &[&none])?;
                self.back(self.vram.1, SMALL, &none, &before).context("what was there before")?;
            }
            self.copy(place, self.source.1, SMALL, &[], &[&copied])?;
            self.back(place, SMALL, &copied, &contents)?;
        }
        self.space.unmap(place, BUFFER)?;
        Ok(times.split_off(1))
    }

    /// Times from the submission of a 4 KiB copy until its syncobj is signalled.
    fn submissions(&mut self) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        let mut found = vec![0; SMALL];
        for turn in 0..SUBMISSIONS {
            let contents = pattern::bytes(turn, 0, SMALL);
            self.source.0.write(0, &contents)?;
            let done = Syncobj::new(self.space.device())?;
            let start = Instant::now();
            self.copy(self.target.1, self.source.1, SMALL, &[], &[&done])?;
            done.wait(LIMIT)?;
            times.push(start.elapsed());
            self.target.0.read(0, &mut found)?;
            if let Some(difference) = pattern::difference(&found, &contents) {
                bail!("syncobj {turn} was signalled before its copy was done: {difference}");
            }
        }
        Ok(times)
    }
}
