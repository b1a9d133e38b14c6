//! One attack after the other on machines that stay up, each judged; the same for guests' attacks and peers'.

use std::time::Instant;

use anyhow::Result;
use gpuvmk_lab::interrupt;
use gpuvmk_lab::process::Priority;

use super::figures::Tick;
use super::judge::{Listed, Noted, Told, Verdict};
use super::speed::{Speed, Speeds, Undisturbed};

/// What is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// The outcome, accesses, daemons and the victim's data: the same on every machine, however busy.
    Outcome,
    /// The victim's speed too.
    All,
}

/// An attack as it went.
#[derive(Debug)]
pub struct Round {
    pub told: Told,
    pub noted: Noted,
    /// The victim's, during it.
    pub ticks: Vec<Tick>,
    /// When it began and ended.
    pub time: (Instant, Instant),
    /// The part of that time in which VMs beside the victim had work that was not done.
    pub others_wanted: f64,
}

/// Processes that want a processor beside the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbours {
    pub priority: Priority,
    /// How many at a time.
    pub processes: usize,
}

/// Machines on which attacks are made beside a victim.
pub trait Scene {
    /// A kind of attack.
    type Attack: Copy;

    /// What is judged of it.
    fn listed(attack: Self::Attack) -> Listed;

    /// The attackers' processes. As many spin in their place while nobody attacks, at the same priority: how
    /// much of a processor they may have is the host's business, and what they do with the GPU is what is
    /// judged.
    fn neighbours(attack: Self::Attack) -> Neighbours {
        let _ = attack;
        Neighbours { priority: Priority::Lower, processes: 1 }
    }

    /// Watches the victim while nobody attacks.
    fn watch(&mut self, neighbours: Neighbours) -> Result<Undisturbed>;

    /// Makes an attack, whatever comes of it.
    fn round(&mut self, attack: Self::Attack) -> Result<Round>;

    /// What of the daemons is broken: the next attack would say nothing.
    fn damage(&mut self) -> Result<Vec<String>>;

    /// Ends everything; returns what was wrong about the victim and the daemons.
    fn end(self) -> Result<Vec<String>>;
}

/// What came of a series.
#[derive(Debug, Default)]
pub struct Series {
    pub verdicts: Vec<Verdict>,
    /// What is wrong beside single attacks: daemons, the victim's end.
    pub problems: Vec<String>,
}

impl Series {
    /// Whether everything came out as it must.
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.verdicts.iter().all(Verdict::ok)
    }

    /// The attacks that came out otherwise, and what is wrong beside them.
    pub fn failed(&self) -> Vec<String> {
        let attacks = self.verdicts.iter().filter(|verdict| !verdict.ok());
        let line = |verdict: &Verdict| {
            format!("{} ({}): {}", verdict.attack.name, verdict.seen, verdict.problems.join("; "))
        };
        attacks.map(line).chain(self.problems.iter().cloned()).collect()
    }
}

/// Makes the attacks. An attack that cannot be made has failed, and ends the series.
pub fn run<S: Scene>(scene: S, attacks: &[S::Attack], judged: Judged) -> Result<Series> {
    let mut run = Run { scene, before: None, judged };
    let mut series = Series::default();
    for attack in attacks {
        interrupt::check()?;
        let name = S::listed(*attack).name;
        match run.verdict(*attack) {
            Ok(verdict) => {
                verdict.print();
                series.verdicts.push(verdict);
            }
            Err(error) => {
                series.problems.push(format!("{name}: {error:#}"));
                break;
            }
        }
        let damage = run.scene.damage()?;
        if !damage.is_empty() {
            series.problems.extend(damage.into_iter().map(|what| format!("{name}: {what}")));
            break;
        }
    }
    series.problems.extend(run.scene.end()?);
    Ok(series)
}

struct Run<S> {
    scene: S,
    /// The time before the next attack, once it is known, and who spun then.
    before: Option<(Neighbours, Undisturbed)>,
    judged: Judged,
}

impl<S: Scene> Run<S> {
    /// Makes an attack, and again if the victim was too slow in it.
    fn verdict(&mut self, attack: S::Attack) -> Result<Verdict> {
        let mut verdict = self.once(attack)?;
        while verdict.asks_for_more() {
            interrupt::check()?;
            verdict = verdict.and(self.once(attack)?);
        }
        Ok(verdict)
    }

    fn once(&mut self, attack: S::Attack) -> Result<Verdict> {
        if self.judged == Judged::Outcome {
            let round = self.scene.round(attack)?;
            return Ok(Verdict::of(S::listed(attack), round.told, round.noted, Speeds::default()));
        }
        let neighbours = S::neighbours(attack);
        let before = match self.before.take() {
            Some((known, before)) if known == neighbours => before,
            _ => self.scene.watch(neighbours)?,
        };
        let round = self.scene.round(attack)?;
        // The first tick began before the attack.
        let first = usize::from(round.ticks.len() > 2);
        let during = |tick: &&Tick| tick.at <= round.time.1;
        let ticks: Vec<_> = round.ticks.iter().skip(first).filter(during).cloned().collect();
        let after = self.scene.watch(neighbours)?;
        let undisturbed = before.and(&after);
        self.before = Some((neighbours, after));
        let speed = Speed::of(&ticks, round.time, &undisturbed, round.others_wanted);
        Ok(Verdict::of(S::listed(attack), round.told, round.noted, Speeds::of(speed)))
    }
}
