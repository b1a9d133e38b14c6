//! `fence`: completion as the driver sees it, asleep (the interrupt wakes it) and awake (it polls), and
//! semaphores that carry the GPU's time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::session::{FENCE_LIMIT, Session};
use super::{Figures, Options};
use crate::push::Commands;
use crate::{pattern, stats};

const LENGTH: usize = 4096;
const SUBMISSIONS: u32 = 250;
const RELEASES: u32 = 16;

pub fn run(options: &Options) -> Result<Figures> {
    let mut session = Session::open(options.gpu()?, 1 << 20)?;
    let asleep = submissions(&mut session, true).context("waiting asleep")?;
    let awake = submissions(&mut session, false).context("waiting awake")?;
    let span = time_stamps(&mut session)?;

    let mut figures = Figures::new();
    figures.insert("submissions".into(), (2 * SUBMISSIONS).into());
    figures.insert("submit_us_p50".into(), stats::percentile_us(&asleep, 50).into());
    figures.insert("submit_us_p90".into(), stats::percentile_us(&asleep, 90).into());
    figures.insert("awake_us_p50".into(), stats::percentile_us(&awake, 50).into());
    figures.insert("gpu_span_ns".into(), span.into());
    Ok(figures)
}

/// Times from the submission of a 4 KiB copy to its fence; each copy's bytes are compared.
fn submissions(session: &mut Session, sleep: bool) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut found = vec![0; LENGTH];
    for turn in 0..SUBMISSIONS {
        let contents = pattern::bytes(turn ^ (u32::from(sleep) << 16), 0, LENGTH);
        session.source.write(0, &contents)?;
        let start = Instant::now();
        session.channel.copy((&session.target, 0), (&session.source, 0), LENGTH)?;
        if sleep {
            session.target.wait()?;
        } else {
            session.target.wait_awake(FENCE_LIMIT)?;
        }
        times.push(start.elapsed());
        session.target.read(0, &mut found)?;
        if let Some(difference) = pattern::difference(&found, &contents) {
            bail!("fence {turn} was signalled before its copy was done: {difference}");
        }
    }
    Ok(times)
}

/// Releases in order must carry their payloads, and times that never go back. Returns the span, in
/// nanoseconds.
fn time_stamps(session: &mut Session) -> Result<u64> {
    let mut commands = Commands::new();
    for index in 0..RELEASES {
        let address = session.target.address() + u64::from(index) * 16;
        session.channel.engine().release_with_time(&mut commands, address, 0x5eed_0000 + index);
    }
    session.target.write(0, &[0; 16 * RELEASES as usize])?;
    session.channel.submit(&commands, &[&session.target])?;
    session.target.wait()?;
    let mut words = [0; 16 * RELEASES as usize];
    session.target.read(0, &mut words)?;
    let (mut first, mut last) = (None, 0);
    for (index, record) in (0..RELEASES).zip(words.chunks_exact(16)) {
        let payload = u32::from_le_bytes(record.first_chunk().copied().unwrap_or_default());
        let time = u64::from_le_bytes(record.last_chunk().copied().unwrap_or_default());
        ensure!(payload == 0x5eed_0000 + index, "semaphore {index} holds {payload:#x}");
        ensure!(
            time > 0 && time >= last,
            "semaphore {index} was written at {time}, the one before at {last}"
        );
        first.get_or_insert(time);
        last = time;
    }
    Ok(last - first.unwrap_or(last))
}
