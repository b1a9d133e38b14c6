//! `reload`: nouveau goes and comes back, and the GPU works as after the first load.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::session::Session;
use super::{Figures, Options};
use crate::drm::render_nodes;
use crate::{init, stats, sys};

const LIMIT: Duration = Duration::from_secs(30);

pub fn run(_options: &Options) -> Result<Figures> {
    let gpus = render_nodes().len();
    let start = Instant::now();
    remove()?;
    let removed = start.elapsed();
    let probe_ms = init::load_nouveau().context("after the removal")?;
    anyhow::ensure!(render_nodes().len() == gpus, "{gpus} GPUs before, {} after", render_nodes().len());
    for gpu in 0..gpus.max(1) {
        let mut session = Session::open(gpu, 2 << 20).context("after the reload")?;
        session.there_and_back(7, [0, 0, 0], 1 << 20).context("after the reload")?;
        session.there_and_back(8, [1, 2, 3], 65_537).context("after the reload")?;
    }
    let mut figures = Figures::new();
    figures.insert("remove_ms".into(), stats::round(removed.as_secs_f64() * 1e3).into());
    figures.insert("reload_probe_ms".into(), probe_ms.into());
    Ok(figures)
}

/// Removes the module; the kernel may hold it for a moment after its last user has gone.
pub fn remove() -> Result<()> {
    let start = Instant::now();
    loop {
        match sys::remove_module("nouveau") {
            Ok(()) => return Ok(()),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EWOULDBLOCK | libc::EBUSY)) => {
                if start.elapsed() > LIMIT {
                    return Err(error).context("nouveau is in use and cannot be removed");
                }
            }
            Err(error) => return Err(error).context("nouveau cannot be removed"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}
