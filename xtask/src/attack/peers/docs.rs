//! docs/peer-attacks.md: one table, written from what was measured.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use gpuvmk_attacks::peers::By;
use gpuvmk_lab::cache::source_tree;

use super::PeerReport;
use crate::attack::judge::Verdict;

const HEAD: &str = "\
# Attacks at the sockets

What a hostile QEMU does to its device backend, what a hostile device backend does to the aggregator, and what comes of it.
`cargo xtask attack --peers` makes every attack of the table while a guest copies data and checks each page of it on a vGPU of the
same aggregator; this page is written by `cargo xtask attack --peers --write-docs`.

";

const EXPLANATION: &str = "
**Row** counts the behaviours that a GPU mediator must survive; a hostile device backend has none there. **By**: a *client* in place of QEMU at a
device backend's socket, a *backend* in place of a device backend at the aggregator's socket (the socket is the same user's, mode 0600: who
attacks it is a device backend that its guest has taken over), or the *machine*: QEMU itself, killed, stopped, or started in numbers.
**Outcome**, as the attacker sees it: **V**, values only, **Q**, what attacked was stopped, **R**, refused or closed, **L**, it went on within a bound.

Required of every attack: the outcome; all daemons are the same processes afterwards, none panicked; within 8 s they hold no more descriptors and
threads than before the first attack, and no more than 8 MiB of private memory more; tenants, VRAM and channels of the aggregator are as they
were; an honest client or backend is served afterwards, and finds its memory zero; the victim's data are right; no engine access left its VM's
memory (**Foreign**); the daemons log no more than 16 KiB a second. **Victim** is the victim's throughput under the attack, by its throughput
beside as many processes that only spin (two in place of a client or of QEMUs that start, and the device backend they work on; else one) and by its fair share (at least 0.95 is required), **Reads** the 99th percentile of its register reads against the same
(at most 2); an attack whose first measurement misses is measured five times, and eleven times if their median misses as well; the figures are the
medians, marked (5) or (11). Attackers
and the device backend that they attack run at nice 15 and on one half of the host's processors, the victim on the other half.

`vms-36` runs 36 device backends at once, each with QEMU with firmware and no kernel on its socket for a while, eight QEMUs at a time.
";

/// Writes the page.
pub fn write(report: &PeerReport) -> Result<()> {
    let mut text = HEAD.to_owned();
    text.push_str("| row | attack | by | what it does | expected | outcome | victim | reads | foreign |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for verdict in &report.series.verdicts {
        text.push_str(&line(verdict)?);
    }
    text.push_str(EXPLANATION);
    let path = source_tree().join("docs/peer-attacks.md");
    fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))
}

fn line(verdict: &Verdict) -> Result<String> {
    let attack = verdict.attack;
    let speed = verdict.speeds.median();
    let count = verdict.speeds.count();
    let times = if count > 1 { format!(" ({count})") } else { String::new() };
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let by = match attack.by {
        Some(By::Client) => "client",
        Some(By::Backend | By::Neighbour) => "backend",
        Some(By::Machine) => "machine",
        None => "-",
    };
    let mut line = String::new();
    writeln!(
        line,
        "| {} | `{}` | {by} | {} | {} | {} | {}{times} | {} | {} |",
        attack.row.map_or("-".into(), |row| row.to_string()),
        attack.name,
        attack.what,
        attack.letters(),
        verdict.outcome.map_or("-".into(), |outcome| outcome.letter().to_string()),
        number(speed.and_then(|speed| speed.throughput)),
        number(speed.and_then(|speed| speed.p99)),
        verdict.noted.foreign_accesses.map_or("-".into(), |count| count.to_string()),
    )?;
    Ok(line)
}
