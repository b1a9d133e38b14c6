//! `cargo xtask attack --peers`: hostile processes at the sockets, beside a guest at work.
//!
//! A program in place of QEMU lies to a device backend; a program in place of a device backend lies to the
//! aggregator; and QEMUs are killed, stopped and started in numbers. After each attack all daemons must be
//! the same processes, hold no more descriptors, threads and memory than before the first, and serve an
//! honest peer.

mod docs;
mod machines;
pub mod program;
pub mod resources;
mod stage;
mod vms;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gpuvmk_attacks::peers::{ATTACKS, By, PeerAttack};

use super::figures::Work;
use super::judge::{Listed, Noted, Told};
use super::series::{self, Judged, Neighbours, Round, Scene, Series};
use super::speed::Undisturbed;
use crate::workshop::Workshop;
pub use docs::write as write_docs;
use program::Peer;
use stage::Stage;

/// How long the victim is watched undisturbed before and after an attack.
const IDLE: Duration = Duration::from_millis(1500);

/// The attacks with one of these words in their names; all without words.
pub fn named(words: &[String], short: bool) -> Vec<&'static PeerAttack> {
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let beside_a_guest = |attack: &&PeerAttack| attack.by != By::Neighbour;
    let all = ATTACKS.iter().filter(beside_a_guest);
    all.filter(|attack| wanted(attack.name) && (attack.short || !short)).collect()
}

/// What came of all attacks.
#[derive(Debug, Default)]
pub struct PeerReport {
    pub series: Series,
    pub wall: Duration,
}

/// Makes the attacks; one that has no end of its own lasts for `time`.
pub fn attack(
    workshop: &Workshop,
    attacks: &[&'static PeerAttack],
    time: Duration,
    judged: Judged,
) -> Result<PeerReport> {
    let start = Instant::now();
    let program = program::build()?;
    let mut peers = Peers { stage: Stage::start(workshop, program)?, time };
    // The first seconds after boot are nobody's measure.
    peers.stage.idle(IDLE)?;
    peers.warm_up()?;
    peers.stage.take_baseline()?;
    if judged == Judged::All {
        peers.stage.keep_apart()?;
    }
    let series = series::run(peers, attacks, judged)?;
    Ok(PeerReport { series, wall: start.elapsed() })
}

/// A victim, and sockets to attack for so long.
struct Peers<'a> {
    stage: Stage<'a>,
    time: Duration,
}

impl Scene for Peers<'_> {
    type Attack = &'static PeerAttack;

    fn listed(attack: Self::Attack) -> Listed {
        attack.into()
    }

    fn neighbours(attack: Self::Attack) -> Neighbours {
        // A client and the threads of the device backend that it works on run at a time, and so do a QEMU
        // that starts and its backend; a backend's attack is its own, and one machine that is killed or
        // stopped waits.
        let processes = if matches!(attack.by, By::Client) || attack.name == "vms-36" { 2 } else { 1 };
        Neighbours { priority: machines::priority(attack.name), processes }
    }

    fn watch(&mut self, Neighbours { priority, processes }: Neighbours) -> Result<Undisturbed> {
        // The aggregator may use the attackers' processors as well: they are as busy now as during an attack.
        let spinning = (0..processes).map(|_| self.stage.neighbour(priority));
        let _neighbours = spinning.collect::<Result<Vec<_>>>()?;
        // A tick that began during an attack is not of this time.
        self.stage.idle(Duration::from_millis(300))?;
        self.stage.ticks.clear();
        let before = self.stage.snapshot()?;
        self.stage.idle(IDLE)?;
        let after = self.stage.snapshot()?;
        let work = Work::of(self.stage.ticks.iter());
        Ok(Undisturbed { work, wanting: after.victim_wanting_since(&before) })
    }

    fn round(&mut self, attack: Self::Attack) -> Result<Round> {
        let foreign = self.stage.foreign_accesses();
        let before = self.stage.snapshot()?;
        self.stage.ticks.clear();
        let made = match (attack.by, attack.name) {
            (By::Client | By::Backend | By::Neighbour, name) => self.make_again(name),
            (By::Machine, "vms-36") => vms::start_and_stop(&mut self.stage),
            (By::Machine, name) => machines::make(&mut self.stage, name, self.time),
        };
        let after = self.stage.snapshot()?;
        let ticks = std::mem::take(&mut self.stage.ticks);
        let mut told =
            made.unwrap_or_else(|error| Told { problems: vec![format!("{error:#}")], ..Told::default() });
        if ticks.is_empty() {
            told.problems.push("the victim did nothing".into());
        }
        let now = self.stage.foreign_accesses();
        told.problems.extend(self.stage.held_for_good()?);
        let noted = Noted {
            took: after.at.duration_since(before.at),
            // An attack is made again and again: each new process has a burst of its own.
            bursts: 2,
            log_bytes: after.log_bytes.saturating_sub(before.log_bytes),
            foreign_accesses: now.map(|now| now.saturating_sub(foreign.unwrap_or(0))),
            ..Noted::default()
        };
        let time = (before.at, after.at);
        Ok(Round { told, noted, ticks, time, others_wanted: after.others_wanting_since(&before) })
    }

    fn damage(&mut self) -> Result<Vec<String>> {
        self.stage.rig.damage()
    }

    fn end(self) -> Result<Vec<String>> {
        self.stage.end()
    }
}

impl Peers<'_> {
    /// An honest client and an honest backend, so that nothing is allocated for the first time during an
    /// attack.
    fn warm_up(&mut self) -> Result<()> {
        for name in ["honest-client", "honest-backend"] {
            let told = self.make_by_program(name, Duration::from_millis(200))?;
            ensure!(told.problems.is_empty(), "{name}: {}", told.problems.join("; "));
        }
        Ok(())
    }

    /// Has the program make an attack until the time is up: many are over in no time.
    fn make_again(&mut self, name: &str) -> Result<Told> {
        let (start, time) = (Instant::now(), self.time);
        let mut told = self.make_by_program(name, time)?;
        let mut times = 1;
        while told.problems.is_empty() && start.elapsed() < time {
            told = self.make_by_program(name, time)?;
            times += 1;
        }
        if times > 1 {
            told.seen = format!("{} ({times} times)", told.seen);
        }
        Ok(told)
    }

    /// Has the program make an attack, and counts while it still holds what it got.
    fn make_by_program(&mut self, name: &str, time: Duration) -> Result<Told> {
        let (device, aggregator) = (self.stage.peer_socket(), self.stage.aggregator_socket());
        let folder = self.stage.workshop.folder(stage::CASE).join("attackers");
        let mut peer = Peer::start(&self.stage.program, name, (&device, &aggregator), time, &folder)?;
        self.stage.put_aside(peer.id())?;
        loop {
            self.stage.pump()?;
            if let Some(told) = peer.told()? {
                self.stage.snapshot()?;
                peer.end()?;
                return Ok(told);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
