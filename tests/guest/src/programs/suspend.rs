//! `suspend`: the kernel suspends all devices and wakes them; VRAM comes back as it was, and the GPU works.
//!
//! The kernel's own test mode is used (`/sys/power/pm_test`): devices are suspended for seconds, the machine is not.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::session::Session;
use super::{Figures, Options};
use crate::{pattern, stats};

const KEPT: usize = 1 << 20;

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let mut session = Session::open(gpu, 2 << 20)?;
    session.there_and_back(1, [0, 0, 0], 65_537).context("before")?;
    let kept = pattern::bytes(0x51ee9, 0, KEPT);
    session.source.write(0, &kept)?;
    session.channel.copy((&session.vram, 0), (&session.source, 0), KEPT)?;
    session.vram.wait()?;

    let start = Instant::now();
    suspend()?;
    let took = start.elapsed();

    let mut found = vec![0; KEPT];
    session.channel.copy((&session.target, 0), (&session.vram, 0), KEPT).context("afterwards")?;
    session.target.wait().context("afterwards")?;
    session.target.read(0, &mut found)?;
    if let Some(difference) = pattern::difference(&found, &kept) {
        bail!("VRAM did not survive: {difference}");
    }
    session.there_and_back(2, [1, 2, 3], 65_537).context("a channel from before, afterwards")?;
    let mut newcomer = Session::open(gpu, 1 << 20).context("a channel opened afterwards")?;
    newcomer.there_and_back(3, [0, 0, 0], 65_537).context("a channel opened afterwards")?;
    let mut figures = Figures::new();
    figures.insert("suspend_resume_ms".into(), stats::round(took.as_secs_f64() * 1e3).into());
    Ok(figures)
}

/// Suspends every device to memory and wakes them again.
fn suspend() -> Result<()> {
    let states = fs::read_to_string("/sys/power/state").context("cannot read /sys/power/state")?;
    let state =
        ["mem", "freeze"].into_iter().find(|state| states.split_whitespace().any(|word| word == *state));
    let state = state.with_context(|| format!("the kernel can suspend only to '{}'", states.trim()))?;
    fs::write("/sys/power/pm_test", "devices").context("cannot choose the kernel's suspend test")?;
    let levels = fs::read_to_string("/sys/power/pm_test").unwrap_or_default();
    ensure!(levels.contains("[devices]"), "the kernel's suspend test is at '{}'", levels.trim());
    let done = fs::write("/sys/power/state", state).with_context(|| format!("cannot suspend to {state}"));
    fs::write("/sys/power/pm_test", "none").context("cannot leave the kernel's suspend test")?;
    done
}
