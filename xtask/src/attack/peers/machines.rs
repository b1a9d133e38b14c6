//! What happens to QEMU itself: killed while its guest works, and stopped.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_lab::chip::GuestChip as _;
use gpuvmk_lab::machine::Machine;
use gpuvmk_lab::process::Priority;
use gpuvmk_lab::report::Report;

use super::stage::{CASE, Stage, signal};
use crate::attack::judge::Told;
use crate::cases::Guest;

/// How long a guest may take to boot and to be at work.
const BOOT: Duration = Duration::from_secs(90);
/// How long a dead QEMU's guest may occupy anything.
const CLEANED: Duration = Duration::from_secs(1);
/// The priority of QEMU and of the device backend that it works on.
const MACHINE: Priority = Priority::Low;
/// How often QEMU is killed.
const KILLS: u32 = 2;

/// The priority of an attack's processes: machines have to boot beside a victim that wants all there is.
pub fn priority(attack: &str) -> Priority {
    match attack {
        "qemu-killed" | "qemu-stopped" => MACHINE,
        _ => Priority::Lower,
    }
}

/// Makes one of these attacks.
pub fn make(stage: &mut Stage<'_>, name: &str, time: Duration) -> Result<Told> {
    stage.give_attacked(MACHINE)?;
    let told = match name {
        "qemu-killed" => killed(stage),
        "qemu-stopped" => stopped(stage, time),
        _ => bail!("There is no attack '{name}'"),
    };
    stage.give_attacked(Priority::Lower)?;
    told
}

/// A guest with the stock driver on the attacked device backend.
fn start(stage: &Stage<'_>, label: &str, program: &'static [&'static str]) -> Result<Machine> {
    let guest = Guest { vram_mib: 64, ..Guest::new("peer", stage.chip, stage.chip.usual_kernel(), program) };
    let machine = stage.workshop.start(CASE, label, &stage.rig, &guest, 1)?;
    machine.set_priority(MACHINE)?;
    stage.put_aside(machine.id())?;
    Ok(machine)
}

/// Work that the guest's vGPU has handed in, and channels that it has.
fn peers_use(stage: &Stage<'_>) -> Result<(u64, usize)> {
    let tenants = stage.rig.tenants()?;
    let peer = tenants.iter().find(|tenant| tenant.name == "peer").context("The peer is no tenant")?;
    Ok((peer.submissions, peer.channels))
}

/// Waits until the guest is in the middle of its work.
fn at_work(stage: &mut Stage<'_>, machine: &mut Machine) -> Result<()> {
    let (first, _) = peers_use(stage)?;
    let waited = stage.wait(BOOT, |stage| {
        if let Some(outcome) = machine.pump(&mut |_| {})? {
            bail!("The guest ended early: {}", outcome.problem.unwrap_or_default());
        }
        let (submissions, channels) = peers_use(stage)?;
        Ok(channels > 0 && submissions > first + 100)
    })?;
    waited.with_context(|| format!("The guest is not at work after {} s", BOOT.as_secs())).map(|_| ())
}

/// SIGKILL in the middle of transfers; everything of it is gone within a second, and the next QEMU works on
/// its socket.
fn killed(stage: &mut Stage<'_>) -> Result<Told> {
    let mut worst = Duration::ZERO;
    for round in 0..KILLS {
        let mut machine = start(stage, &format!("killed-{round}"), &["load:secs=60"])?;
        at_work(stage, &mut machine)?;
        // To take down what a process had is the host's own work, and is timed at its usual priority.
        machine.set_priority(Priority::Usual)?;
        stage.give_attacked(Priority::Usual)?;
        machine.kill()?;
        let cleaned = stage.wait(CLEANED * 5, |stage| Ok(peers_use(stage)?.1 == 0))?;
        let took = cleaned.context("The channels of a dead guest are not taken away")?;
        worst = worst.max(took);
        stage.give_attacked(MACHINE)?;
    }
    ensure!(worst < CLEANED, "A dead guest's channels were there for {worst:?}");
    let mut machine = start(stage, "killed-next", &["copy"])?;
    finish(stage, &mut machine)?;
    Ok(Told {
        outcome: Some("V".into()),
        seen: format!(
            "killed: {KILLS}, cleaned up after {} ms at most, the next guest copied",
            worst.as_millis()
        ),
        ..Told::default()
    })
}

/// Runs a guest to its end, which must be a good one.
fn finish(stage: &mut Stage<'_>, machine: &mut Machine) -> Result<()> {
    let mut ended = None;
    stage.wait(BOOT, |_| {
        ended = machine.pump(&mut |_| {})?;
        Ok(ended.is_some())
    })?;
    let outcome = ended.context("The guest does not end")?;
    let failed = outcome.reports.iter().find_map(|report| match report {
        Report::Result(result) if !result.ok => Some(result.error.clone().unwrap_or_default()),
        _ => None,
    });
    match outcome.problem.or(failed) {
        Some(problem) => bail!("The guest failed: {problem}"),
        None => Ok(()),
    }
}

/// SIGSTOP in the middle of transfers: its daemon waits for it, nobody else does; its work goes on
/// afterwards.
fn stopped(stage: &mut Stage<'_>, time: Duration) -> Result<Told> {
    // Long enough that the work is not over when it is stopped.
    let mut machine = start(stage, "stopped", &["load:secs=6"])?;
    at_work(stage, &mut machine)?;
    signal(machine.id(), "-STOP")?;
    let time = time.max(Duration::from_secs(3));
    let idle = stage.idle(time);
    let status = stage.rig.tenants();
    signal(machine.id(), "-CONT")?;
    idle?;
    status?;
    finish(stage, &mut machine)?;
    Ok(Told {
        outcome: Some("V".into()),
        seen: format!("stopped for {:.1} s, its work was right afterwards", time.as_secs_f64()),
        ..Told::default()
    })
}
