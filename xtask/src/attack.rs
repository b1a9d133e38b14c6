//! `cargo xtask attack`: hostile guests beside one at work, on the software GPU.
//!
//! The machines stay up for all attacks. Before and after each, the victim works for a moment beside an attacker that
//! spins its processors and leaves the GPU alone, which is what it is measured against: so the load of the attacker's
//! processors, and that of the rest of the machine, is in both figures. An attack whose only fault is the victim's
//! speed is made once more, and the result says so.

mod docs;
mod field;
mod figures;
mod judge;
pub mod peers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk_attacks::{Attack, Target};
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::interrupt;
use serde_json::json;

use crate::workshop::Workshop;
use field::Field;
use figures::{Tick, Work};
use judge::{Undisturbed, Verdict, judge, judge_outcome};
use peers::PeerReport;

/// How long the victim is watched before and after an attack.
const WATCHED: Duration = Duration::from_millis(1500);
/// A tick that began during an attack is not of the time after it.
const TICK: Duration = Duration::from_millis(300);
/// How long an attack lasts when only its outcome is judged.
const OUTCOME_TIME: Duration = Duration::from_millis(700);

/// What is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    /// The outcome, accesses, daemons and the victim's data: the same on every machine, however busy.
    Outcome,
    /// The victim's speed too.
    All,
}

/// What to attack.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// Attack vGPUs of this chip only
    #[arg(long, value_name = "CHIP")]
    chip: Option<Chip>,
    /// Only attacks at the sockets: hostile QEMUs and hostile device backends
    #[arg(long, conflicts_with = "chip")]
    peers: bool,
    /// Only attacks whose name contains this. May be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only the attacks of the short run, which 'cargo xtask test' makes
    #[arg(long)]
    short: bool,
    /// Judge outcomes, accesses, daemons and the victim's data, and not its speed; faster, and true on a busy machine
    #[arg(long)]
    outcomes: bool,
    /// List the attacks and do nothing
    #[arg(long)]
    list: bool,
    /// Seconds that an attack lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 2.5)]
    seconds: f64,
    /// Write docs/attacks.md from what is measured; with --chip, that chip's part of it
    #[arg(long, conflicts_with_all = ["only", "short", "outcomes"])]
    write_docs: bool,
    /// Where logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/xtask-attack")]
    logs: PathBuf,
    /// A gpuvmk to use instead of building one
    #[arg(long, value_name = "FILE")]
    gpuvmk: Option<PathBuf>,
}

impl Arguments {
    fn chips(&self) -> Vec<Chip> {
        let all = Chip::ALL.into_iter().filter(|_| !self.peers);
        all.filter(|chip| self.chip.is_none_or(|wanted| wanted == *chip)).collect()
    }

    /// The attacks at the sockets; those on a chip are others.
    fn peer_attacks(&self) -> Vec<&'static gpuvmk_attacks::peers::PeerAttack> {
        if self.chip.is_some() { Vec::new() } else { peers::named(&self.only, self.short) }
    }

    fn attacks(&self, chip: Chip) -> Vec<&'static Attack> {
        let named = |attack: &Attack| {
            self.only.is_empty() || self.only.iter().any(|part| attack.name.contains(part.as_str()))
        };
        attacks_on(chip).iter().filter(|attack| named(attack) && (attack.short || !self.short)).collect()
    }
}

/// What came of all attacks on a chip.
#[derive(Debug)]
pub struct Report {
    pub chip: Chip,
    pub verdicts: Vec<Verdict>,
    /// What is wrong beside single attacks: daemons, the victim's end.
    pub problems: Vec<String>,
    /// The victim's throughput beside an attacker that only spins, divided by that beside an idle one.
    pub beside_spinning: Option<f64>,
    pub wall: Duration,
}

impl Report {
    /// Whether everything came out as it must.
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.verdicts.iter().all(Verdict::ok)
    }
}

fn attacks_on(chip: Chip) -> &'static [Attack] {
    gpuvmk_attacks::on(match chip {
        Chip::Gf100 => Target::Fermi,
        Chip::Gh100 => Target::Hopper,
    })
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let wanted: Vec<_> = arguments
        .chips()
        .into_iter()
        .map(|chip| (chip, arguments.attacks(chip)))
        .filter(|(_, attacks)| !attacks.is_empty())
        .collect();
    let at_sockets = arguments.peer_attacks();
    ensure!(
        !wanted.is_empty() || !at_sockets.is_empty(),
        "No attack has such a name: see 'cargo xtask attack --list'"
    );
    if arguments.list {
        for (chip, attacks) in wanted {
            attacks.iter().for_each(|attack| println!("{chip} {:24} {}", attack.name, attack.what));
        }
        at_sockets.iter().for_each(|attack| println!("peers {:24} {}", attack.name, attack.what));
        return Ok(true);
    }
    let victim = (!at_sockets.is_empty()).then_some(Chip::Gf100);
    let kinds = wanted
        .iter()
        .map(|(chip, _)| *chip)
        .chain(victim)
        .map(|chip| (chip.usual_kernel(), Firmware::for_kernel(chip.usual_kernel())))
        .collect();
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
    let time =
        Duration::try_from_secs_f64(arguments.seconds).context("An attack lasts a number of seconds")?;
    let mut reports = Vec::new();
    for (chip, attacks) in &wanted {
        eprintln!("{chip}: {} attacks; logs in {}", attacks.len(), arguments.logs.display());
        let judged = if arguments.outcomes { Judged::Outcome } else { Judged::All };
        reports.push(attack(&workshop, *chip, attacks, time, judged)?);
    }
    let mut peer_report = PeerReport::default();
    if !at_sockets.is_empty() {
        eprintln!("sockets: {} attacks; logs in {}", at_sockets.len(), arguments.logs.display());
        let options = peers::Options { time, by_speed: !arguments.outcomes };
        peer_report = peers::attack(&workshop, &at_sockets, options)?;
    }
    if arguments.write_docs && !arguments.peers {
        docs::write(&reports)?;
    }
    if arguments.write_docs && !at_sockets.is_empty() {
        peers::write_docs(&peer_report)?;
    }
    let ok = reports.iter().all(Report::ok) && peer_report.ok();
    for problem in reports.iter().flat_map(|report| &report.problems).chain(&peer_report.problems) {
        println!("{problem}");
    }
    println!("{}", if ok { "all attacks came out as they must" } else { "FAILED" });
    if arguments.json {
        println!("{}", to_json(&reports, &peer_report));
    }
    Ok(ok)
}

/// Makes the short run on both chips and at the sockets, and judges outcomes only: for `cargo xtask test`.
pub fn short(logs: &Path, gpuvmk: Option<&Path>) -> Result<bool> {
    let kinds = Chip::ALL.map(|chip| (chip.usual_kernel(), Firmware::for_kernel(chip.usual_kernel())));
    let workshop = Workshop::open(&kinds.into_iter().collect(), logs, gpuvmk)?;
    let mut ok = true;
    for chip in Chip::ALL {
        eprintln!("{chip}: attacks");
        let attacks: Vec<_> = attacks_on(chip).iter().filter(|attack| attack.short).collect();
        let report = attack(&workshop, chip, &attacks, OUTCOME_TIME, Judged::Outcome)?;
        report.problems.iter().for_each(|problem| eprintln!("    {problem}"));
        ok &= report.ok();
    }
    eprintln!("sockets: attacks");
    let options = peers::Options { time: OUTCOME_TIME, by_speed: false };
    let report = peers::attack(&workshop, &peers::named(&[], true), options)?;
    report.problems.iter().for_each(|problem| eprintln!("    {problem}"));
    Ok(ok && report.ok())
}

/// Makes the attacks on a chip. An attack that cannot be made has failed.
fn attack(
    workshop: &Workshop,
    chip: Chip,
    attacks: &[&'static Attack],
    time: Duration,
    judged: Judged,
) -> Result<Report> {
    let start = Instant::now();
    let mut run = Run { field: Field::start(workshop, chip.name(), chip)?, before: None, time };
    let mut report = Report {
        chip,
        verdicts: Vec::new(),
        problems: Vec::new(),
        beside_spinning: None,
        wall: Duration::ZERO,
    };
    if judged == Judged::All {
        report.beside_spinning = run.beside_spinning()?;
    }
    for attack in attacks {
        interrupt::check()?;
        let verdict = match judged {
            Judged::All => run.verdict(attack),
            Judged::Outcome => run.outcome(attack),
        };
        match verdict {
            Ok(verdict) => {
                print(&verdict);
                report.verdicts.push(verdict);
            }
            Err(error) => {
                report.problems.push(format!("{}: {error:#}", attack.name));
                break;
            }
        }
        let damage = run.field.damage()?;
        if !damage.is_empty() {
            report.problems.extend(damage.into_iter().map(|what| format!("{}: {what}", attack.name)));
            break;
        }
    }
    report.problems.extend(run.field.end()?);
    report.wall = start.elapsed();
    Ok(report)
}

/// A time in which the attacker did nothing to the GPU.
#[derive(Clone)]
struct Watched {
    ticks: Vec<Tick>,
    wanting: f64,
    others: f64,
}

struct Run<'a> {
    field: Field<'a>,
    /// The time before the next attack, once it is known.
    before: Option<Watched>,
    time: Duration,
}

impl Run<'_> {
    /// Watches the victim beside an attacker that spins, or that does nothing at all.
    fn watch(&mut self, spins: bool) -> Result<Watched> {
        if spins {
            self.field.busy(TICK + WATCHED)?;
        }
        self.field.idle(TICK)?;
        self.field.ticks.clear();
        let before = self.field.snapshot()?;
        self.field.idle(WATCHED)?;
        let after = self.field.snapshot()?;
        let ticks = std::mem::take(&mut self.field.ticks);
        Ok(Watched {
            ticks,
            wanting: after.victim_wanting_since(&before),
            others: after.others_since(&before),
        })
    }

    /// What a spinning attacker costs the victim, by the processors that they share.
    fn beside_spinning(&mut self) -> Result<Option<f64>> {
        // The first seconds after boot are nobody's measure.
        self.field.idle(WATCHED)?;
        let mut rate =
            |spins| self.watch(spins).map(|watched| Work::of(watched.ticks.iter()).rate().unwrap_or(0.0));
        let (idle, spinning) = (rate(false)?, rate(true)?);
        Ok((idle > 0.0).then(|| spinning / idle))
    }

    /// Makes an attack, and once more if the victim was too slow in it.
    fn verdict(&mut self, attack: &'static Attack) -> Result<Verdict> {
        let verdict = self.measure(attack)?;
        if verdict.slowness.is_empty() || !verdict.problems.is_empty() {
            return Ok(verdict);
        }
        Ok(verdict.or_again(self.measure(attack)?))
    }

    fn outcome(&mut self, attack: &'static Attack) -> Result<Verdict> {
        self.field.ready()?;
        Ok(judge_outcome(attack, &self.field.attack(attack, self.time)?))
    }

    fn measure(&mut self, attack: &'static Attack) -> Result<Verdict> {
        self.field.ready()?;
        let before = match self.before.take() {
            Some(before) => before,
            None => self.watch(true)?,
        };
        self.field.ticks.clear();
        let round = self.field.attack(attack, self.time)?;
        let mut ticks = std::mem::take(&mut self.field.ticks);
        // The first one began before the attack.
        if ticks.len() > 2 {
            ticks.remove(0);
        }
        ticks.retain(|tick| tick.at <= round.after.at);
        // The time behind it counts as much as the one before: so a load that comes or goes meanwhile is halved.
        self.field.ready()?;
        let after = self.watch(true)?;
        let undisturbed = Undisturbed {
            work: Work::of(before.ticks.iter().chain(&after.ticks)),
            wanting: (before.wanting + after.wanting) / 2.0,
            others: before.others.max(after.others),
        };
        self.before = Some(after);
        Ok(judge(attack, &round, &ticks, &undisturbed))
    }
}

fn print(verdict: &Verdict) {
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let letter = verdict.outcome.map_or('-', gpuvmk_attacks::Outcome::letter);
    eprintln!(
        "{:24} {letter} ({}) throughput {} p99 {} share {:.2}: {}",
        verdict.attack.name,
        verdict.attack.letters(),
        number(verdict.throughput_ratio),
        number(verdict.p99_ratio),
        verdict.fair_share,
        verdict.seen
    );
    verdict.problems.iter().chain(&verdict.slowness).for_each(|problem| eprintln!("    {problem}"));
}

/// The whole result.
fn to_json(reports: &[Report], peers: &PeerReport) -> serde_json::Value {
    let verdicts = || {
        reports.iter().flat_map(|report| report.verdicts.iter().map(move |verdict| (report.chip, verdict)))
    };
    let attacks: Vec<_> = verdicts()
        .map(|(chip, verdict)| {
            let mut attack = verdict.to_json();
            if let Some(fields) = attack.as_object_mut() {
                fields.insert("chip".into(), chip.name().into());
            }
            attack
        })
        .collect();
    // A VM that hangs the engine is not held to a throughput: what counts is that the engine comes back.
    let least = verdicts()
        .filter(|(_, verdict)| !verdict.attack.hang)
        .filter_map(|(chip, verdict)| Some((verdict.throughput_ratio?, chip.name(), verdict.attack.name)))
        .chain(
            peers
                .verdicts
                .iter()
                .filter_map(|peer| Some((peer.throughput_ratio?, "peers", peer.attack.name))),
        )
        .min_by(|(one, ..), (other, ..)| one.total_cmp(other));
    json!({
        "ok": reports.iter().all(Report::ok) && peers.ok(),
        "attacks": attacks,
        "peers": peers.to_json(),
        "foreign_accesses": verdicts().map(|(_, verdict)| verdict.foreign_accesses.unwrap_or(0)).sum::<u64>()
            + peers.verdicts.iter().filter_map(|verdict| verdict.foreign_accesses).sum::<u64>(),
        "victim_throughput_ratio_min": least.map(|(least, ..)| (least * 1000.0).round() / 1000.0),
        "victim_throughput_ratio_min_under": least.map(|(_, kind, name)| format!("{kind} {name}")),
        "hangs_left_out": verdicts().filter(|(_, verdict)| verdict.attack.hang)
            .map(|(chip, verdict)| format!("{chip} {}", verdict.attack.name)).collect::<Vec<_>>(),
        "failsafe_decided_us_max": verdicts().filter_map(|(_, verdict)| verdict.fail_safe_us).max(),
        "beside_spinning": reports.iter()
            .map(|report| json!({ "chip": report.chip.name(), "victim_throughput_ratio": report.beside_spinning }))
            .collect::<Vec<_>>(),
        "problems": reports.iter().flat_map(|report| &report.problems).chain(&peers.problems).collect::<Vec<_>>(),
        "seconds": reports.iter().map(|report| report.wall).chain([peers.wall]).sum::<Duration>().as_secs(),
    })
}

/// The documentation's file.
fn page(tree: &Path) -> PathBuf {
    tree.join("docs/attacks.md")
}
