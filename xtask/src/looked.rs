//! Guests with heads, whose monitors are looked at while they run.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use gpuvmk_lab::machine::{self, Machine, Outcome};
use gpuvmk_lab::rig::Rig;
use gpuvmk_lab::screen::Audience;

use crate::cases::{Case, Guest};
use crate::workshop::Workshop;

/// How often it is looked whether a guest sleeps that is to.
const NIGHT: Duration = Duration::from_millis(200);

/// A guest and whoever looks at its monitor.
struct Shown {
    machine: Machine,
    audience: Audience,
    sleeps: bool,
    outcome: Option<Outcome>,
}

/// Runs a case's guests, one GPU each, to their ends. Comes back with how each ended, and with what was wrong
/// with what their monitors showed.
pub fn run(workshop: &Workshop, case: &Case, rig: &Rig) -> Result<(Vec<Outcome>, Vec<String>)> {
    let mut all = Vec::new();
    for (index, guest) in case.guests.iter().enumerate() {
        all.push(Shown::start(workshop, case, rig, guest, index)?);
    }
    let mut asked = Instant::now();
    while all.iter().any(|shown| shown.outcome.is_none()) {
        let ask = asked.elapsed() >= NIGHT;
        if ask {
            asked = Instant::now();
        }
        for shown in all.iter_mut().filter(|shown| shown.outcome.is_none()) {
            shown.pump(ask)?;
        }
        thread::sleep(machine::LOOK);
    }
    let mut problems = Vec::new();
    for (guest, shown) in case.guests.iter().zip(&all) {
        problems.extend(shown.problems().into_iter().map(|problem| format!("{}: {problem}", guest.name)));
    }
    Ok((all.into_iter().filter_map(|shown| shown.outcome).collect(), problems))
}

impl Shown {
    fn start(workshop: &Workshop, case: &Case, rig: &Rig, guest: &Guest, index: usize) -> Result<Self> {
        let machine = workshop.start_with_orders(&case.name, guest.name, rig, guest, index)?;
        let audience = Audience::new(workshop.gpuvmk(), rig, index, &machine.spec().folder);
        let sleeps = guest.programs.iter().any(|program| program.contains("sleep=deep"));
        Ok(Self { machine, audience, sleeps, outcome: None })
    }

    fn pump(&mut self, ask: bool) -> Result<()> {
        self.outcome = self.machine.pump(&mut |_| {})?;
        if self.outcome.is_some() {
            return Ok(());
        }
        self.audience.attend(&mut self.machine)?;
        // A QEMU that has just ended does not answer.
        if self.sleeps && ask && self.machine.is_asleep().unwrap_or(false) {
            self.machine.wake()?;
        }
        Ok(())
    }

    /// What was wrong with what was seen. Pictures that were right go, but for the last.
    fn problems(&self) -> Vec<String> {
        let looks = self.audience.looks();
        if looks.is_empty() {
            return vec!["nobody has looked at its monitor".to_owned()];
        }
        for look in looks.iter().rev().skip(1).filter(|look| look.problem.is_none()) {
            // A picture that stays does no harm.
            let _ = fs::remove_file(&look.path);
        }
        looks.iter().filter_map(|look| look.problem.clone()).collect()
    }
}
