//! `i2m`: bytes that travel inside the commands, written by the graphics engine; and reports of the compute
//! class. `fill`: memory filled with a constant by the copy engine. Both for chips with a GSP.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::session::{FENCE_LIMIT, Session};
use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::Device;
use crate::engine::{Engine, turing};
use crate::push::{Commands, Subchannel};
use crate::{pattern, stats};

const BUFFER: usize = 1 << 20;
/// Two classes upload, each bound to a subchannel of its own: compute, and that for uploads.
const COMPUTE: Subchannel = Subchannel(1);
const UPLOAD: Subchannel = Subchannel(2);
/// Data words come in packets of at most 8191.
const LENGTHS: [usize; 5] = [4, 16, 1000, 4096, 16 << 10];
/// The word that memory is filled with.
const FILLED: u32 = 0xa5c3_0f96;
const REPORTS: u32 = 16;
const SPINS: u32 = 100;

/// Uploads to VRAM and to system memory, and reports behind them.
pub fn inline(options: &Options) -> Result<Figures> {
    let device = Device::open(options.gpu()?)?;
    let classes = Chip::of(&device)?.classes()?;
    let uploaders = [(COMPUTE, classes.compute), (UPLOAD, classes.upload)];
    let mut session = Session::on(&device, Engine::GraphicsCopy, BUFFER)?;
    for (subchannel, class) in uploaders {
        session
            .channel
            .bind(subchannel, class)
            .with_context(|| format!("cannot bind the class {class:#x}"))?;
    }
    for (subchannel, class) in uploaders {
        for (seed, length) in (1..).zip(LENGTHS) {
            upload(&mut session, subchannel, seed, length)
                .with_context(|| format!("class {class:#x}, {length} bytes"))?;
        }
    }
    let times = reports(&mut session)?;
    let mut figures = Figures::new();
    figures.insert("report_us_p50".into(), stats::percentile_us(&times, 50).into());
    Ok(figures)
}

/// An upload to VRAM that a copy brings back, and one to system memory.
fn upload(session: &mut Session, subchannel: Subchannel, seed: u32, length: usize) -> Result<()> {
    const OFFSET: usize = 4096 - 8;
    let contents = pattern::bytes(seed, 0, length);
    for direct in [true, false] {
        let place = if direct { &session.target } else { &session.vram };
        let mut commands = Commands::new();
        turing::upload(&mut commands, subchannel, place.address() + OFFSET as u64, &contents);
        session.target.write(OFFSET, &vec![0; length])?;
        session.channel.submit(&commands, &[&session.target, &session.vram])?;
        if !direct {
            session.vram.wait()?;
            session.channel.copy((&session.target, OFFSET), (&session.vram, OFFSET), length)?;
        }
        session.target.wait()?;
        let mut found = vec![0; length];
        session.target.read(OFFSET, &mut found)?;
        if let Some(difference) = pattern::difference(&found, &contents) {
            bail!("upload ({}) went wrong: {difference}", if direct { "system memory" } else { "VRAM" });
        }
    }
    Ok(())
}

/// Reports must carry their payloads, and times that never go back. Returns how long each was waited for,
/// awake.
fn reports(session: &mut Session) -> Result<Vec<Duration>> {
    let (mut times, mut last) = (Vec::new(), 0);
    for turn in 0..REPORTS {
        let payload = 0x7e90_0000 + turn;
        let mut commands = Commands::new();
        turing::report(&mut commands, COMPUTE, session.target.address(), payload);
        session.target.write(0, &[0; 16])?;
        let start = Instant::now();
        session.channel.submit(&commands, &[&session.target])?;
        let time = spin(session, payload)?;
        times.push(start.elapsed());
        ensure!(time > 0 && time >= last, "report {turn} was written at {time}, the one before at {last}");
        last = time;
        session.target.wait()?;
    }
    Ok(times)
}

/// Looks at the start of the target, without any system call, until `payload` is there; returns the time
/// beside it.
fn spin(session: &mut Session, payload: u32) -> Result<u64> {
    let start = Instant::now();
    loop {
        let mut record = [0; 16];
        session.target.read(0, &mut record)?;
        if record.first_chunk() == Some(&payload.to_le_bytes()) {
            // The time may be written after the payload.
            let time = u64::from_le_bytes(record.last_chunk().copied().unwrap_or_default());
            if time != 0 {
                return Ok(time);
            }
        }
        ensure!(start.elapsed() < FENCE_LIMIT, "{payload:#x} is not there after {FENCE_LIMIT:?}");
    }
}

/// Fills by the copy engine, and the engine's own semaphores.
pub fn fill(options: &Options) -> Result<Figures> {
    let device = Device::open(options.gpu()?)?;
    Chip::of(&device)?.classes()?;
    let mut figures = Figures::new();
    for engine in [Engine::Copy, Engine::GraphicsCopy] {
        let mut session = Session::on(&device, engine, BUFFER)?;
        let mut commands = Commands::new();
        let words = (BUFFER / 2 / 4) as u64;
        session.source.write(0, &pattern::bytes(3, 0, BUFFER))?;
        session.channel.copy((&session.vram, 0), (&session.source, 0), BUFFER)?;
        turing::fill(&mut commands, session.vram.address() + 4096, words, FILLED);
        session.channel.submit(&commands, &[&session.vram])?;
        session.channel.copy((&session.target, 0), (&session.vram, 0), BUFFER)?;
        session.target.wait()?;
        let mut found = vec![0; BUFFER];
        session.target.read(0, &mut found)?;
        let mut wanted = pattern::bytes(3, 0, BUFFER);
        let filled = wanted.iter_mut().skip(4096).take(BUFFER / 2);
        for (byte, value) in filled.zip(FILLED.to_le_bytes().into_iter().cycle()) {
            *byte = value;
        }
        if let Some(difference) = pattern::difference(&found, &wanted) {
            bail!("{engine:?}: fill went wrong: {difference}");
        }
        let times = engine_semaphores(&mut session).with_context(|| format!("{engine:?}"))?;
        if engine == Engine::Copy {
            figures.insert("spin_us_min".into(), stats::percentile_us(&times, 0).into());
            figures.insert("spin_us_p50".into(), stats::percentile_us(&times, 50).into());
        }
    }
    Ok(figures)
}

/// From submission until the copy engine's own semaphore is seen by a program that only looks at memory.
fn engine_semaphores(session: &mut Session) -> Result<Vec<Duration>> {
    const LENGTH: usize = 4096;
    let mut times = Vec::new();
    for turn in 0..SPINS {
        let payload = 0xce00_0000 + turn;
        let contents = pattern::bytes(turn, 0, LENGTH);
        session.source.write(0, &contents)?;
        session.target.write(0, &[0; 16])?;
        let mut commands = Commands::new();
        let (to, from) = (session.target.address() + LENGTH as u64, session.source.address());
        turing::copy_and_release(&mut commands, (to, from, LENGTH as u64), session.target.address(), payload);
        let start = Instant::now();
        session.channel.submit(&commands, &[&session.source, &session.target])?;
        spin(session, payload)?;
        times.push(start.elapsed());
        let mut found = vec![0; LENGTH];
        session.target.read(LENGTH, &mut found)?;
        if let Some(difference) = pattern::difference(&found, &contents) {
            bail!("semaphore {turn} was released before its copy was done: {difference}");
        }
        session.target.wait()?;
    }
    Ok(times)
}
