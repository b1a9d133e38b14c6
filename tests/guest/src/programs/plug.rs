//! `plug`: the host unplugs the GPU under a loaded driver and plugs it in again, and it works as at first.
//!
//! The host begins when it hears that this program has. So the GPU may be gone before it is looked at here.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::session::Session;
use super::{Figures, Options};
use crate::drm::render_nodes;
use crate::stats;

/// The kernel is told by ACPI, and probes the GPU anew.
const LIMIT: Duration = Duration::from_secs(90);

/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(20);

pub fn run(_options: &Options) -> Result<Figures> {
    let start = Instant::now();
    wait(0).context("the GPU does not go")?;
    let went = start.elapsed();
    wait(1).context("the GPU does not come back")?;
    // The kernel shows a node a moment before it can be opened.
    let mut session = loop {
        match Session::open(0, 2 << 20) {
            Ok(session) => break session,
            Err(error) if start.elapsed() > LIMIT => return Err(error.context("after it came back")),
            Err(_) => thread::sleep(LOOK),
        }
    };
    let came = start.elapsed();
    session.there_and_back(7, [0, 0, 0], 1 << 20).context("after it came back")?;
    session.there_and_back(8, [1, 2, 3], 65_537).context("after it came back")?;
    let mut figures = Figures::new();
    for (name, time) in [("unplug_ms", went), ("plug_ms", came.saturating_sub(went))] {
        figures.insert(name.into(), stats::round(time.as_secs_f64() * 1e3).into());
    }
    Ok(figures)
}

fn wait(gpus: usize) -> Result<()> {
    let start = Instant::now();
    while render_nodes().len() != gpus {
        ensure!(start.elapsed() < LIMIT, "{} GPUs are there after {LIMIT:?}", render_nodes().len());
        thread::sleep(LOOK);
    }
    Ok(())
}
