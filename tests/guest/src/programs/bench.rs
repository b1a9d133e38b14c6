//! `bench`: how fast work gets to the GPU and back. Medians; the host compares them between set-ups.
//! `bench:awake=0` leaves out what does not sleep: on some GPUs each look at a fence is a trapped read.
//! `bench:times=N` does everything N times as often, and `bench:only=copy_16m` one of them only.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::session::{FENCE_LIMIT, Session};
use super::{Figures, Options};
use crate::push::Commands;
use crate::stats;

const LARGE: usize = 16 << 20;
const SMALL: usize = 4096;

pub fn run(options: &Options) -> Result<Figures> {
    let mut session = Session::open(options.gpu()?, LARGE)?;
    let repeats = options.get("repeats", 300usize)?;
    let awake = options.get("awake", 1u8)? != 0;
    let factor = options.get("times", 1usize)?;
    let only: String = options.get("only", String::new())?;
    let wanted = |name: &str| only.is_empty() || only == name;
    let mut figures = Figures::new();

    // The first submissions pay for page faults and buffer placement.
    measure(&mut session, SMALL, 1, 20, true)?;
    for (name, sleep) in [("latency_4k", true), ("latency_4k_awake", false)] {
        if !wanted(name) || !sleep && !awake {
            continue;
        }
        let times = measure(&mut session, SMALL, 1, repeats * factor, sleep)?;
        figures.insert(format!("{name}_us_p50"), stats::percentile_us(&times, 50).into());
        figures.insert(format!("{name}_us_p90"), stats::percentile_us(&times, 90).into());
    }
    // A submission of `times` copies, from the shortest work to many milliseconds.
    let works = [
        ("copy_1m", 1 << 20, 1, 60, true),
        ("copy_1m_awake", 1 << 20, 1, 60, false),
        ("copy_16m", LARGE, 1, 20, true),
        ("work_4m", 1 << 20, 4, 40, true),
        ("work_4m_awake", 1 << 20, 4, 40, false),
        ("work_16m", 4 << 20, 4, 20, true),
        ("work_64m", LARGE, 4, 8, true),
    ];
    for (name, length, times, repeats, sleep) in works {
        if !wanted(name) || !sleep && !awake {
            continue;
        }
        let samples = measure(&mut session, length, times, repeats * factor, sleep)?;
        let median = stats::percentile_us(&samples, 50);
        figures.insert(format!("{name}_us_p50"), median.into());
        // Bytes per microsecond are megabytes per second.
        let moved = (length * times) as f64;
        figures.insert(format!("{name}_mb_s"), stats::round(moved / median.max(0.01)).into());
    }
    for (name, length, times) in [("span_1m", 1 << 20, 1), ("span_4m", 1 << 20, 4), ("span_16m", LARGE, 1)] {
        if !wanted(name) {
            continue;
        }
        let spans = spans(&mut session, length, times, 40)?;
        figures.insert(format!("{name}_gpu_us"), stats::percentile_us(&spans, 50).into());
    }
    Ok(figures)
}

/// The GPU's own time for `copies` copies of `length` bytes: between two semaphores around them.
fn spans(session: &mut Session, length: usize, copies: usize, repeats: usize) -> Result<Vec<Duration>> {
    let one = session.channel.copy_commands((&session.vram, 0), (&session.source, 0), length)?;
    let engine = session.channel.engine();
    let mut commands = Commands::new();
    engine.release_with_time(&mut commands, session.target.address(), 1);
    (0..copies).for_each(|_| commands.extend(&one));
    engine.release_with_time(&mut commands, session.target.address() + 16, 2);
    let mut spans = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        session.channel.submit(&commands, &[&session.vram, &session.source, &session.target])?;
        session.target.wait()?;
        let mut times = [[0; 8]; 2];
        session.target.read(8, &mut times[0])?;
        session.target.read(24, &mut times[1])?;
        let [begin, end] = times.map(u64::from_le_bytes);
        spans.push(Duration::from_nanos(end.saturating_sub(begin)));
    }
    Ok(spans)
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
