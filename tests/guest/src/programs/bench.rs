//! `bench`: how fast work gets to the GPU and back. Medians; the host compares them between set-ups.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::session::{FENCE_LIMIT, Session};
use super::{Figures, Options};
use crate::copy::Engine;
use crate::push::Commands;
use crate::stats;

const LARGE: usize = 16 << 20;
const SMALL: usize = 4096;

pub fn run(options: &Options) -> Result<Figures> {
    let mut session = Session::open(options.gpu()?, Engine::M2mf, LARGE)?;
    let repeats = options.get("repeats", 300usize)?;
    let mut figures = Figures::new();

    // The first submissions pay for page faults and buffer placement.
    measure(&mut session, SMALL, 1, 20, true)?;
    for (name, sleep) in [("latency_4k", true), ("latency_4k_awake", false)] {
        let times = measure(&mut session, SMALL, 1, repeats, sleep)?;
        figures.insert(format!("{name}_us_p50"), stats::percentile_us(&times, 50).into());
        figures.insert(format!("{name}_us_p90"), stats::percentile_us(&times, 90).into());
    }
    // A submission of `times` copies, from the shortest work to many milliseconds.
    let works = [
        ("copy_1m", 1 << 20, 1, 60),
        ("copy_16m", LARGE, 1, 20),
        ("work_4m", 1 << 20, 4, 40),
        ("work_16m", 4 << 20, 4, 20),
        ("work_64m", LARGE, 4, 8),
    ];
    for (name, length, times, repeats) in works {
        let samples = measure(&mut session, length, times, repeats, true)?;
        let median = stats::percentile_us(&samples, 50);
        figures.insert(format!("{name}_us_p50"), median.into());
        // Bytes per microsecond are megabytes per second.
        let moved = (length * times) as f64;
        figures.insert(format!("{name}_mb_s"), stats::round(moved / median.max(0.01)).into());
    }
    Ok(figures)
}

/// Times from submission to fence of `copies` copies of `length` bytes, GART to VRAM, in one submission.
fn measure(
    session: &mut Session,
    length: usize,
    copies: usize,
    repeats: usize,
    sleep: bool,
) -> Result<Vec<Duration>> {
    let one = session.channel.copy_commands((&session.vram, 0), (&session.source, 0), length)?;
    let mut commands = Commands::new();
    (0..copies).for_each(|_| commands.extend(&one));
    let mut times = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let start = Instant::now();
        session.channel.submit(&commands, &[&session.vram, &session.source])?;
        if sleep {
            session.vram.wait()?;
        } else {
            session.vram.wait_awake(FENCE_LIMIT)?;
        }
        times.push(start.elapsed());
    }
    Ok(times)
}
