//! `suspend`: the kernel suspends all devices and wakes them; VRAM comes back as it was, and the GPU works.
//!
//! With `sleep=devices` the kernel's own test mode is used (`/sys/power/pm_test`): devices are suspended for
//! seconds, the machine is not. With `sleep=deep` the machine sleeps (S3) until the host wakes it, which
//! resets all devices. `times=N` does it as often, with the same channel and the same memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
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

    let deep = match options.get("sleep", "devices".to_owned())?.as_str() {
        "devices" => false,
        "deep" => true,
        other => bail!("sleep={other} is neither devices nor deep"),
    };
    let mut took = Vec::new();
    for round in 1..=options.get("times", 1)? {
        let start = Instant::now();
        if deep { sleep() } else { suspend() }.with_context(|| format!("round {round}"))?;
        took.push(start.elapsed().as_secs_f64() * 1e3);
        afterwards(&mut session, gpu, &kept).with_context(|| format!("afterwards, round {round}"))?;
    }
    let mut figures = Figures::new();
    let slowest = took.iter().copied().fold(0.0, f64::max);
    figures.insert("suspend_resume_ms".into(), stats::round(slowest).into());
    figures.insert("rounds".into(), took.len().into());
    Ok(figures)
}

/// What was in VRAM is there, the channel from before works, and so does a new one.
fn afterwards(session: &mut Session, gpu: usize, kept: &[u8]) -> Result<()> {
    let mut found = vec![0; KEPT];
    session.channel.copy((&session.target, 0), (&session.vram, 0), KEPT)?;
    session.target.wait()?;
    session.target.read(0, &mut found)?;
    if let Some(difference) = pattern::difference(&found, kept) {
        bail!("VRAM did not survive: {difference}");
    }
    // Behind what is kept.
    session.there_and_back(2, [1, KEPT + 2, 3], 65_537).context("a channel from before")?;
    let mut newcomer = Session::open(gpu, 1 << 20).context("a channel opened afterwards")?;
    newcomer.there_and_back(3, [0, 0, 0], 65_537).context("a channel opened afterwards")
}

/// Lets the machine sleep; returns when the host has woken it.
fn sleep() -> Result<()> {
    let modes = fs::read_to_string("/sys/power/mem_sleep").context("cannot read /sys/power/mem_sleep")?;
    ensure!(modes.contains("deep"), "the machine cannot sleep (S3), only '{}'", modes.trim());
    fs::write("/sys/power/mem_sleep", "deep").context("cannot choose S3")?;
    let registers = PowerManagement::look()?;
    fs::write("/sys/power/state", "mem").context("cannot sleep")?;
    registers.put_back()
}

/// Where a Q35's registers for sleeping and powering off are. A reset forgets it, and SeaBIOS, which sets it
/// up at a boot, does not when it wakes the machine: it would neither sleep nor power off again.
struct PowerManagement([u8; 5]);

impl PowerManagement {
    const BRIDGE: &str = "/sys/bus/pci/devices/0000:00:1f.0/config";
    /// PMBASE, and ACPI_CNTL behind it.
    const PLACE: u64 = 0x40;

    fn look() -> Result<Self> {
        let mut bytes = [0; 5];
        let bridge = File::open(Self::BRIDGE).with_context(|| format!("cannot open {}", Self::BRIDGE))?;
        bridge.read_exact_at(&mut bytes, Self::PLACE).context("cannot read where power management is")?;
        Ok(Self(bytes))
    }

    fn put_back(&self) -> Result<()> {
        let bridge = File::options().write(true).open(Self::BRIDGE);
        let bridge = bridge.with_context(|| format!("cannot open {}", Self::BRIDGE))?;
        bridge.write_all_at(&self.0, Self::PLACE).context("cannot put power management back")
    }
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
