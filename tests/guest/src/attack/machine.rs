//! Rows 30 and 39: the attacker's whole machine ends or stands still, whatever its GPU is at.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::tool::{End, FROM, HONEST, Lines, TO, Tool};
use super::{Outcome, Seen, Time};

/// How long a kernel may take to end.
const END: Duration = Duration::from_secs(10);

/// Row 39: honest work, right to the last byte, while the host stops and continues the machine.
pub fn stopped(tool: &mut dyn Tool, time: Time) -> Result<Seen> {
    let mut copies = 0u32;
    while time.goes_on() {
        let end = tool.copies_honestly(copies);
        ensure!(end == End::Done, "copy {copies} ended with {end:?}");
        // Long enough to be under way when the machine stops.
        let end = tool.copy(TO, FROM, Lines { count: 1 << 14, pitch: 0 }, HONEST);
        ensure!(end == End::Done, "the long copy behind copy {copies} ended with {end:?}");
        copies += 2;
    }
    Ok(Seen::new(
        Outcome::Values,
        format!("{copies} copies while the machine was stopped and continued, all done"),
    ))
}

/// Row 30: ends the kernel at once: by a panic or without one, by a triple fault or through the keyboard
/// controller. Returns only if it is still there.
pub fn crash(round: u32) -> Result<Seen> {
    let how = if round.is_multiple_of(2) { "triple" } else { "kbd" };
    fs::write("/sys/kernel/reboot/type", how).context("cannot choose how the machine is reset")?;
    fs::write("/proc/sys/kernel/sysrq", "1").context("cannot allow crashes")?;
    // A panic, or a restart of the machine without a word to any driver.
    let key = if round % 4 < 2 { "c" } else { "b" };
    fs::write("/proc/sysrq-trigger", key).context("cannot crash")?;
    thread::sleep(END);
    bail!("the kernel survived its crash ('{key}', {how})")
}
