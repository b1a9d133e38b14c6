//! The short run, which `cargo xtask test` makes: outcomes only.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use gpuvmk_attacks::Attack;
use gpuvmk_lab::chip::{Chip, GuestChip as _, USUAL};
use gpuvmk_lab::firmware::Firmware;

use super::series::{Judged, Series};
use super::{attack, attacks_on, neighbour, peers};
use crate::workshop::Workshop;

/// How long an attack lasts when only its outcome is judged.
const OUTCOME_TIME: Duration = Duration::from_millis(700);

/// Further chips of the short run, and what of it is another thing on them: a GSP that is booted by falcons,
/// through the ports of their memories, with page tables of version 2; other messages to FSP, and tokens.
const FURTHER: [(Chip, &[&str]); 2] = [
    (Chip::TU106, &["boot-abuse", "foreign-vram", "table-loops"]),
    (Chip::GB203, &["boot-abuse", "foreign-tokens"]),
];

/// The short run: chips with the attacks on them.
fn short_attacks() -> impl Iterator<Item = (Chip, Vec<&'static Attack>)> {
    let of = |chip| attacks_on(chip).iter().filter(|attack| attack.short);
    let usual = USUAL.into_iter().map(move |chip| (chip, of(chip).collect()));
    let part = |part: &'static [&str]| move |attack: &&Attack| part.contains(&attack.name);
    usual.chain(FURTHER.into_iter().map(move |(chip, names)| (chip, of(chip).filter(part(names)).collect())))
}

/// Makes the short run on both usual chips, a part of it on others, and at the sockets, and judges outcomes
/// only: for `cargo xtask test`.
///
/// Guests' attacks and those of processes are made at the same time: either wait for much of theirs. What
/// failed is returned.
pub fn short(logs: &Path, gpuvmk: Option<&Path>) -> Result<Vec<String>> {
    let kernels = short_attacks().map(|(chip, _)| chip.usual_kernel());
    let kinds = kernels.map(|kernel| (kernel, Firmware::for_kernel(kernel)));
    let workshop = Workshop::open(&kinds.collect(), logs, gpuvmk)?;
    let (of_guests, of_processes) = thread::scope(|scope| {
        let processes = scope.spawn(|| short_of_processes(&workshop, logs, gpuvmk));
        (short_of_guests(&workshop), processes.join())
    });
    let of_processes = of_processes.map_err(|_| anyhow!("a thread that made attacks panicked"))?;
    Ok([of_guests?, of_processes?].concat())
}

fn short_of_guests(workshop: &Workshop) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    for (chip, attacks) in short_attacks() {
        eprintln!("{chip}: attacks");
        let series = attack(workshop, chip, &attacks, OUTCOME_TIME, Judged::Outcome)?.series;
        failed.extend(told(&series).into_iter().map(|what| format!("{chip}: {what}")));
    }
    Ok(failed)
}

fn short_of_processes(workshop: &Workshop, logs: &Path, gpuvmk: Option<&Path>) -> Result<Vec<String>> {
    eprintln!("sockets: attacks");
    let mut failed =
        told(&peers::attack(workshop, &peers::named(&[], true), OUTCOME_TIME, Judged::Outcome)?.series);
    eprintln!("beside a neighbour: attacks");
    let beside = neighbour::attack(logs, gpuvmk, &neighbour::named(&[], true), OUTCOME_TIME, false)?;
    beside.problems.iter().for_each(|problem| eprintln!("    {problem}"));
    failed.extend(beside.failed());
    Ok(failed)
}

/// Says what is wrong beside single attacks; all that failed.
fn told(series: &Series) -> Vec<String> {
    series.problems.iter().for_each(|problem| eprintln!("    {problem}"));
    series.failed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_short_run_are_of_attacks_that_there_are() {
        for (chip, names) in FURTHER {
            let there = short_attacks().find(|(other, _)| *other == chip).unwrap().1;
            assert_eq!(there.len(), names.len(), "{chip}");
        }
    }
}
