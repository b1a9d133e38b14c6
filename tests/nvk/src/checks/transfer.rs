//! Transfers: fills and copies of 4 MiB between the guest's memory and the GPU's.

use std::rc::Rc;

use anyhow::Result;

use super::{Figures, compare, rounded};
use crate::vulkan::{Buffer, Commands, Device, Place, Timing};

/// 4 MiB.
const WORDS: usize = 1 << 20;

/// Fills GPU memory and copies it back.
pub fn fill(device: &Rc<Device>) -> Result<Figures> {
    const WORD: u32 = 0x1234_abcd;
    let there = Buffer::new(device, Place::Gpu, WORDS)?;
    let back = Buffer::of(device, &vec![0; WORDS])?;
    let mut commands = Commands::begin(device)?;
    commands.fill(&there, WORD);
    let filled = commands.run()?;
    let mut commands = Commands::begin(device)?;
    commands.copy(&there, &back);
    commands.run()?;
    compare::words(&back.read()?, |_| WORD)?;
    Ok(timing(WORDS, filled))
}

/// Copies a pattern to GPU memory, within it, and back.
pub fn copy(device: &Rc<Device>) -> Result<Figures> {
    let words: Vec<u32> = (0..WORDS).map(compare::pattern).collect();
    let source = Buffer::of(device, &words)?;
    let (first, second) = (Buffer::new(device, Place::Gpu, WORDS)?, Buffer::new(device, Place::Gpu, WORDS)?);
    let back = Buffer::of(device, &vec![0; WORDS])?;
    let mut commands = Commands::begin(device)?;
    commands.copy(&source, &first);
    commands.copy(&first, &second);
    commands.copy(&second, &back);
    let copied = commands.run()?;
    compare::words(&back.read()?, compare::pattern)?;
    Ok(timing(WORDS * 3, copied))
}

/// Command buffers with nothing but timestamps: what a submission costs.
pub fn empty(device: &Rc<Device>) -> Result<Figures> {
    const ROUNDS: usize = 50;
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let timing = Commands::begin(device)?.run()?;
        times.push(timing.submit_us + timing.wait_us);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times.get(ROUNDS * part / 100).copied().map(rounded);
    Ok(Figures::from_iter([
        ("rounds".into(), ROUNDS.into()),
        ("p50_us".into(), at(50).into()),
        ("p90_us".into(), at(90).into()),
    ]))
}

fn timing(words: usize, timing: Timing) -> Figures {
    Figures::from_iter([
        ("bytes".into(), (words * 4).into()),
        ("gpu_us".into(), rounded(timing.gpu_us).into()),
        ("submit_us".into(), rounded(timing.submit_us).into()),
        ("wait_us".into(), rounded(timing.wait_us).into()),
    ])
}
