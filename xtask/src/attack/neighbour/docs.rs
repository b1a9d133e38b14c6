//! docs/neighbour.md: one table, written from what was measured.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use gpuvmk_attacks::Outcome;
use gpuvmk_lab::cache::source_tree;

use super::{NeighbourReport, Verdict};

const HEAD: &str = "\
# What attacks cost a neighbour's time

A tenant maps and unmaps a page and copies 4 KiB, again and again, and times each request and each copy from its submission to its fence. Meanwhile a
process in place of a device backend does what is said. `cargo xtask attack --neighbour` makes every attack of the table; this page is
written by `cargo xtask attack --neighbour --write-docs`.

";

const EXPLANATION: &str = "
Measured on a machine with {processors} processors.

**p99** is the 99th percentile of the neighbour's times (requests or copies, whichever grew more) by that beside a process that only spins: 2 at most. **Over machine** is the same
without what the machine does to a thread that only sleeps and is woken four times, as a request is (its 99.7th percentile), and by copies beside an honest tenant that copies: that is what
is judged where there are fewer than four processors, where one of two is engine and aggregator, and a process that ends keeps the other one for milliseconds. The policy is `weighted`, as in the
packaged example. Copies take turns at an engine: the JSON has their times beside an honest tenant that copies without a pause as well (`beside_co_tenant`). **Longest** is
the longest that any request or copy took, in milliseconds: 10 at most, 20 on a machine with fewer than four processors. **Machine** is how late a thread of
the neighbour's was that does nothing but sleep: what the host's own scheduler did. A tenth of a second in which a processor of the machine took four times as long as usual for the
same small computation (in processor time: nothing in the machine does that, its host does) does not count for p99, unless that is most of the time; it counts for the longest. **Residue**: bytes of others that were found in memory that should have been zero.
An attack that misses is measured five times, and the medians count (marked). Outcomes: **V**, values only, **Q**, what attacked was stopped,
**R**, refused or closed, **L**, it went on within a bound.

Required of every attack beside that: the neighbour's copies are right, no engine access left its VM's memory, the daemons are the same processes, hold no
more descriptors, threads and memory 8 s later than before the first attack, and an honest backend is served afterwards and finds its memory zero.
";

/// Writes the page.
pub fn write(report: &NeighbourReport) -> Result<()> {
    let mut text = HEAD.to_owned();
    text.push_str(
        "| attack | what it does | expected | outcome | p99 | over machine | longest | machine | foreign | residue |\n",
    );
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    report.verdicts.iter().try_for_each(|verdict| line(&mut text, verdict))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    text.push_str(&EXPLANATION.replace("{processors}", &processors.to_string()));
    let path = source_tree().join("docs/neighbour.md");
    fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))
}

fn line(text: &mut String, verdict: &Verdict) -> Result<()> {
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let judged = verdict.judged();
    let times = if verdict.times() > 1 { format!(" ({})", verdict.times()) } else { String::new() };
    writeln!(
        text,
        "| `{}` | {} | {} | {} | {}{times} | {} | {} | {} | {} | {} |",
        verdict.name(),
        judged.attack.what,
        judged.attack.letters(),
        judged.outcome.map_or('-', Outcome::letter),
        number(verdict.p99_ratio()),
        number(verdict.p99_ratio_over_machine()),
        number(verdict.stall_ms()),
        number(verdict.machine_ms()),
        judged.noted.foreign_accesses.map_or("-".into(), |count| count.to_string()),
        verdict.residue_bytes(),
    )?;
    Ok(())
}
