//! `bar1`: VRAM through the CPU's window. What the CPU writes the GPU must read, and the other way round.

use std::time::Instant;

use anyhow::{Result, bail};

use super::session::Session;
use super::{Figures, Options};
use crate::{pattern, stats};

/// Reads through the window are slow (each is a message to the GPU's server), writes are not.
const WRITTEN: usize = 64 << 10;
const READ: usize = 16 << 10;

pub fn run(options: &Options) -> Result<Figures> {
    let mut session = Session::open(options.gpu()?, 256 << 10)?;

    let by_cpu = pattern::bytes(0xba1, 0, WRITTEN);
    let start = Instant::now();
    session.vram.write(4096, &by_cpu)?;
    let written = start.elapsed();
    session.channel.copy((&session.target, 0), (&session.vram, 4096), WRITTEN)?;
    session.target.wait()?;
    let mut found = vec![0; WRITTEN];
    session.target.read(0, &mut found)?;
    if let Some(difference) = pattern::difference(&found, &by_cpu) {
        bail!("what the CPU wrote through BAR1 is not what the GPU read: {difference}");
    }

    let by_gpu = pattern::bytes(0xba2, 0, READ);
    session.source.write(0, &by_gpu)?;
    session.channel.copy((&session.vram, 8192), (&session.source, 0), READ)?;
    session.vram.wait()?;
    let mut found = vec![0; READ];
    let start = Instant::now();
    session.vram.read(8192, &mut found)?;
    let read = start.elapsed();
    if let Some(difference) = pattern::difference(&found, &by_gpu) {
        bail!("what the GPU wrote is not what the CPU reads through BAR1: {difference}");
    }

    let mut figures = Figures::new();
    figures.insert("write_ms".into(), stats::round(written.as_secs_f64() * 1e3).into());
    figures.insert("read_ms".into(), stats::round(read.as_secs_f64() * 1e3).into());
    Ok(figures)
}
