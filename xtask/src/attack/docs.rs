//! docs/attacks.md: one table, written from what was measured.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use gpuvmk_lab::cache::source_tree;

use super::judge::Verdict;
use super::{Report, page};

const HEAD: &str = "\
# Attacks

What a hostile guest does to the GPU that it shares, and what comes of it. `cargo xtask attack` makes every attack of the table
while another guest copies data and checks each page of it; this page is written by `cargo xtask attack --write-docs`.

";

const EXPLANATION: &str = "
**Row** counts the behaviours that a GPU mediator must survive; attacks without one are this project's own. **Outcome**, as the attacker sees it: **V**, values only (reads return
something defined, writes change nothing but the attacker's own virtual state); **Q**, what attacked was stopped: its channel by a fault or
an error, or its whole vGPU; **R**, refused, nothing ran; **L**, it went on, within a bound. More than one letter is expected where luck
decides. After each attack the attacker's vGPU is reset, and must work.

**Victim** is the working guest's throughput under the attack, divided by its throughput beside an idle attacker and by its fair share; 0.95
is required, except of attacks that hang an engine, where the victim may not stand still for 2 s. The fair share follows the aggregator's
account of the time in which each VM had unfinished work (`wanting_ms`): half of the time belongs to each VM that wants it, and
what one leaves the other may have. **Reads** is the 99th percentile of the victim's register reads against the undisturbed one; it may double.
**Foreign** counts engine accesses outside the memory of the VM that they were made for, by the software GPU's own ledger; it must be 0.

The attacker's QEMU and device process run at a low CPU priority (nice 10): how VMs share the host's processors is for the host's scheduler to say,
and what is measured here is what goes through the GPU. The GPU is shared by turns (`policy = \"round-robin\"`).
An attack whose only fault is the victim's speed is made up to three times, because other load on the machine makes a victim slower, never faster.
";

/// Writes the page.
pub fn write(reports: &[Report]) -> Result<()> {
    let mut text = HEAD.to_owned();
    text.push_str("| chip | row | attack | what it does | expected | outcome | victim | reads | foreign |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for report in reports {
        for verdict in &report.verdicts {
            text.push_str(&line(report.chip.name(), verdict)?);
        }
    }
    text.push_str(EXPLANATION);
    let path = page(&source_tree());
    fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))
}

fn line(chip: &str, verdict: &Verdict) -> Result<String> {
    let attack = verdict.attack;
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let row = attack.row.map_or("-".into(), |row| row.to_string());
    let outcome = verdict.outcome.map_or("-".into(), |outcome| outcome.letter().to_string());
    let foreign = verdict.foreign_accesses.map_or("-".into(), |count| count.to_string());
    let mut line = String::new();
    writeln!(
        line,
        "| {chip} | {row} | `{}` | {} | {} | {outcome} | {} | {} | {foreign} |",
        attack.name,
        attack.what,
        attack.letters(),
        number(verdict.throughput_ratio),
        number(verdict.p99_ratio),
    )?;
    Ok(line)
}
