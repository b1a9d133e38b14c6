//! docs/attacks.md: one table, written from what was measured.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use gpuvmk_lab::cache::source_tree;
use gpuvmk_lab::chip::{Chip, USUAL};
use gpuvmk_lab::machine::Accelerator;

use super::judge::Verdict;
use super::{Report, page};

const HEAD: &str = "\
# Attacks

What a hostile guest does to the GPU that it shares, and what comes of it. `cargo xtask attack` makes every attack of the table
while another guest copies data and checks each page of it; this page is written by `cargo xtask attack --write-docs`.

";

const EXPLANATION: &str = "
**Row** counts the behaviours that a GPU mediator must survive; attacks without one are this project's own. **Outcome**, as the
attacker sees it: **V**, values only (reads return something defined, writes change nothing but the attacker's own virtual state); **Q**,
what attacked was stopped: its channel by a fault or an error, or its whole vGPU; **R**, refused, nothing ran; **L**, it went on, within a
bound. More than one letter is expected where luck decides. After each attack the attacker's vGPU is reset, and must work.

**Victim** is the working guest's throughput under the attack, divided by its throughput beside an attacker that spins its two
processors and leaves the GPU alone (1.5 s before and after the attack), and by its fair share; 0.95 is required, except of attacks that
hang an engine (**hang**), where the victim may not stand still for 2 s. The fair share follows the aggregator's account of the time in which each
VM had unfinished work (`wanting_ms`): half of the time belongs to each VM that wants it, and what one leaves the other may have. A
victim can get more than its share: an attack that waits burns less of the host's processors than one that spins. **Reads** is the
99th percentile of the victim's register reads against the same; it may double. **Foreign** counts engine accesses
outside the memory of the VM that they were made for, by the software GPU's own ledger; it must be 0. **Fail-safe** is the time from the cause
to the decision that the attacker's vGPU serves it no more, where that came of the attack; 100 ms at most.

The attacker's QEMU and device process run at a low CPU priority (nice 15) and on one half of the host's processors, the victim's on the other
half: how VMs share the host's processors is for the host to say, and what is measured here is what goes through the GPU. The aggregator, with the
software GPU in it, may use all processors. The GPU is shared by turns (`policy = \"best-effort\"`). The victim's speed
on a machine with few processors varies by a third from second to second: an attack whose first measurement misses is measured five times, and
eleven times if their median misses as well; the figures are the medians, marked (5) or (11). A dash: not measured, but judged by its outcome alone.
";

/// Writes the page; a chip that was not attacked keeps what was written of it.
pub fn write(reports: &[Report]) -> Result<()> {
    let path = page(&source_tree());
    let old = fs::read_to_string(&path).unwrap_or_default();
    let mut text = format!("{HEAD}{}", EXPLANATION.trim_start());
    for chip in USUAL {
        match reports.iter().find(|report| report.chip == chip) {
            Some(report) => text.push_str(&section(report)?),
            None => text.push_str(old_section(&old, chip)),
        }
    }
    fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))
}

fn heading(chip: Chip) -> String {
    format!("\n## {chip}\n")
}

/// What was written of a chip.
fn old_section(text: &str, chip: Chip) -> &str {
    let heading = heading(chip);
    let Some(start) = text.find(&heading) else { return "" };
    let section = text.get(start..).unwrap_or_default();
    let end = section.get(heading.len()..).and_then(|rest| rest.find("\n## ")).map(|end| end + heading.len());
    section.get(..end.unwrap_or(section.len())).unwrap_or_default()
}

fn section(report: &Report) -> Result<String> {
    let mut text = heading(report.chip);
    text.push_str(&measured(report));
    text.push_str(
        "| row | attack | what it does | expected | outcome | victim | reads | foreign | fail-safe |\n",
    );
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for verdict in &report.series.verdicts {
        text.push_str(&line(verdict)?);
    }
    Ok(text)
}

/// When and where it was measured.
fn measured(report: &Report) -> String {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    let date =
        date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    let accelerator = Accelerator::of_this_machine().name().to_uppercase();
    let cost = report.beside_spinning.map_or(String::new(), |ratio| {
        format!(" Beside an attacker that only spins, the victim had {ratio:.2} of its throughput beside an idle one.")
    });
    format!(
        "\nMeasured on {date} on a machine of {processors} processors, guests run by {accelerator}.{cost}\n\n"
    )
}

fn line(verdict: &Verdict) -> Result<String> {
    let attack = verdict.attack;
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let row = attack.row.map_or("-".into(), |row| row.to_string());
    let outcome = verdict.outcome.map_or("-".into(), |outcome| outcome.letter().to_string());
    let foreign = verdict.noted.foreign_accesses.map_or("-".into(), |count| count.to_string());
    let speed = verdict.speeds.median();
    let count = verdict.speeds.count();
    let again = if count > 1 { format!(" ({count})") } else { String::new() };
    let hang = if attack.hang { " hang" } else { "" };
    let fail_safe =
        verdict.noted.fail_safe_us.map_or(String::new(), |us| format!("{:.1} ms", us as f64 / 1e3));
    let mut line = String::new();
    writeln!(
        line,
        "| {row} | `{}` | {} | {} | {outcome} | {}{hang}{again} | {} | {foreign} | {fail_safe} |",
        attack.name,
        attack.what,
        attack.letters(),
        number(speed.and_then(|speed| speed.throughput)),
        number(speed.and_then(|speed| speed.p99)),
    )?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_attacks::{Target, on};

    #[test]
    fn section_of_a_chip_ends_where_the_next_begins() {
        let text = "# Attacks\n\n## GF100\n\none\n\n## GH100\n\ntwo\n";
        assert_eq!(old_section(text, Chip::GF100), "\n## GF100\n\none\n");
        assert_eq!(old_section(text, Chip::GH100), "\n## GH100\n\ntwo\n");
        assert_eq!(old_section("# Attacks\n", Chip::GH100), "");
    }

    #[test]
    fn written_table_names_every_attack_and_no_other() {
        let text = fs::read_to_string(page(&source_tree())).unwrap();
        let written = |chip| -> Vec<String> {
            let lines = old_section(&text, chip).lines().filter(|line| line.starts_with("| "));
            lines.filter_map(|line| Some(line.split('`').nth(1)?.to_owned())).collect()
        };
        for (chip, target) in [(Chip::GF100, Target::Fermi), (Chip::GH100, Target::Gsp)] {
            let listed: Vec<_> = on(target).iter().map(|attack| attack.name).collect();
            assert_eq!(written(chip), listed, "run `cargo xtask attack --write-docs`");
        }
    }
}
