//! `load`: verified copies for a while, so that a guest is busy when something happens to it or to its
//! neighbours. `sleep`: nothing for a while.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::session::Session;
use super::{Figures, Options};

const LENGTHS: [usize; 4] = [4096, 65_536, 300_001, 1 << 20];

pub fn run(options: &Options) -> Result<Figures> {
    let limit = Duration::from_secs(options.get("secs", 5)?);
    let mut session = Session::open(options.gpu()?, 2 << 20)?;
    let start = Instant::now();
    let (mut copies, mut longest) = (0u32, Duration::ZERO);
    while start.elapsed() < limit {
        for length in LENGTHS {
            let began = Instant::now();
            session.there_and_back(copies, [0, 4096, 0], length).with_context(|| format!("copy {copies}"))?;
            longest = longest.max(began.elapsed());
            copies += 1;
        }
    }
    let mut figures = Figures::new();
    figures.insert("copies".into(), copies.into());
    figures.insert("longest_ms".into(), u64::try_from(longest.as_millis()).unwrap_or(u64::MAX).into());
    Ok(figures)
}

pub fn sleep(options: &Options) -> Result<Figures> {
    thread::sleep(Duration::from_secs(options.get("secs", 5)?));
    Ok(Figures::new())
}
