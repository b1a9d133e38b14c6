//! `cargo xtask attack`: hostile guests beside one at work, on the software GPU.
//!
//! The machines stay up for all attacks. Before and after each, the victim works for a moment beside an
//! attacker that spins its processors and leaves the GPU alone, which is what it is measured against: so the
//! load of the attacker's processors, and that of the rest of the machine, is in both figures. An attack in
//! which the victim was too slow is made several times, and the result says so.

mod docs;
mod field;
mod figures;
mod judge;
mod neighbour;
pub mod peers;
mod series;
mod short;
mod speed;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk_attacks::{Attack, Target};
use gpuvmk_chip::Face;
use gpuvmk_lab::chip::{Chip, GuestChip as _, USUAL};
use gpuvmk_lab::firmware::Firmware;
use serde_json::{Value, json};

use crate::workshop::Workshop;
use field::Field;
use figures::Work;
use judge::{Listed, Verdict};
use neighbour::NeighbourReport;
use peers::PeerReport;
use series::{Judged, Neighbours, Round, Scene, Series};
pub use short::short;
use speed::Undisturbed;

/// How long the victim is watched before and after an attack.
const WATCHED: Duration = Duration::from_millis(1500);
/// A tick that began during an attack is not of the time after it.
const TICK: Duration = Duration::from_millis(300);

/// What to attack.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// Attack vGPUs of this chip only; otherwise a GF100's and a GH100's
    #[arg(long, value_name = "CHIP")]
    chip: Option<Chip>,
    /// Only attacks at the sockets: hostile QEMUs and hostile device backends
    #[arg(long, conflicts_with = "chip")]
    peers: bool,
    /// Only attacks at the aggregator's socket, judged by the time of a neighbour's requests and copies
    #[arg(long, conflicts_with_all = ["chip", "peers"])]
    neighbour: bool,
    /// Only attacks whose name contains this. May be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only the attacks of the short run, which 'cargo xtask test' makes
    #[arg(long)]
    short: bool,
    /// Judge outcomes, accesses, daemons and the victim's data, and not its speed; faster, and true on a busy
    /// machine
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
        match self.chip {
            Some(chip) => vec![chip],
            None if self.peers || self.neighbour => Vec::new(),
            None => USUAL.to_vec(),
        }
    }

    /// The attacks at the sockets; those on a chip are others.
    fn peer_attacks(&self) -> Vec<&'static gpuvmk_attacks::peers::PeerAttack> {
        let none = self.chip.is_some() || self.neighbour;
        if none { Vec::new() } else { peers::named(&self.only, self.short) }
    }

    /// Those at the aggregator's socket that are judged by a neighbour's time.
    fn neighbour_attacks(&self) -> Vec<&'static gpuvmk_attacks::peers::PeerAttack> {
        let none = self.chip.is_some() || self.peers;
        if none { Vec::new() } else { neighbour::named(&self.only, self.short) }
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
    pub series: Series,
    /// The victim's throughput beside an attacker that only spins, divided by that beside an idle one.
    pub beside_spinning: Option<f64>,
    pub wall: Duration,
}

fn attacks_on(chip: Chip) -> &'static [Attack] {
    gpuvmk_attacks::on(match chip.face {
        Face::Registers => Target::Fermi,
        Face::Gsp => Target::Gsp,
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
    let beside = arguments.neighbour_attacks();
    ensure!(
        !arguments.write_docs || wanted.iter().all(|(chip, _)| USUAL.contains(chip)),
        "docs/attacks.md has the attacks on {} and {}",
        USUAL[0],
        USUAL[1]
    );
    ensure!(
        !wanted.is_empty() || !at_sockets.is_empty() || !beside.is_empty(),
        "No attack has such a name: see 'cargo xtask attack --list'"
    );
    if arguments.list {
        for (chip, attacks) in wanted {
            attacks.iter().for_each(|attack| println!("{chip} {:24} {}", attack.name, attack.what));
        }
        at_sockets.iter().for_each(|attack| println!("peers {:24} {}", attack.name, attack.what));
        beside.iter().for_each(|attack| println!("neighbour {:24} {}", attack.name, attack.what));
        return Ok(true);
    }
    let victim = (!at_sockets.is_empty()).then_some(Chip::GF100);
    let kinds = wanted
        .iter()
        .map(|(chip, _)| *chip)
        .chain(victim)
        .map(|chip| (chip.usual_kernel(), Firmware::for_kernel(chip.usual_kernel())))
        .collect();
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
    let time =
        Duration::try_from_secs_f64(arguments.seconds).context("An attack lasts a number of seconds")?;
    let judged = if arguments.outcomes { Judged::Outcome } else { Judged::All };
    let mut reports = Vec::new();
    for (chip, attacks) in &wanted {
        eprintln!("{chip}: {} attacks; logs in {}", attacks.len(), arguments.logs.display());
        reports.push(attack(&workshop, *chip, attacks, time, judged)?);
    }
    let mut peer_report = PeerReport::default();
    if !at_sockets.is_empty() {
        eprintln!("sockets: {} attacks; logs in {}", at_sockets.len(), arguments.logs.display());
        peer_report = peers::attack(&workshop, &at_sockets, time, judged)?;
    }
    let mut neighbour_report = NeighbourReport::default();
    if !beside.is_empty() {
        eprintln!("beside a neighbour: {} attacks; logs in {}", beside.len(), arguments.logs.display());
        let timed = judged == Judged::All;
        neighbour_report =
            neighbour::attack(&arguments.logs, arguments.gpuvmk.as_deref(), &beside, time, timed)?;
    }
    if arguments.write_docs && !beside.is_empty() {
        neighbour::write_docs(&neighbour_report)?;
    }
    if arguments.write_docs && !reports.is_empty() {
        docs::write(&reports)?;
    }
    if arguments.write_docs && !at_sockets.is_empty() {
        peers::write_docs(&peer_report)?;
    }
    let ok =
        reports.iter().all(|report| report.series.ok()) && peer_report.series.ok() && neighbour_report.ok();
    for problem in reports
        .iter()
        .flat_map(|report| &report.series.problems)
        .chain(&peer_report.series.problems)
        .chain(&neighbour_report.problems)
    {
        println!("{problem}");
    }
    println!("{}", if ok { "all attacks came out as they must" } else { "FAILED" });
    if arguments.json {
        println!("{}", to_json(ok, &reports, &peer_report, &neighbour_report));
    }
    Ok(ok)
}

/// Makes the attacks on a chip.
fn attack(
    workshop: &Workshop,
    chip: Chip,
    attacks: &[&'static Attack],
    time: Duration,
    judged: Judged,
) -> Result<Report> {
    let start = Instant::now();
    let mut guests = Guests { field: Field::start(workshop, chip.name(), chip)?, time };
    let beside_spinning = match judged {
        Judged::All => {
            guests.field.keep_apart()?;
            guests.beside_spinning()?
        }
        Judged::Outcome => None,
    };
    let series = series::run(guests, attacks, judged)?;
    Ok(Report { chip, series, beside_spinning, wall: start.elapsed() })
}

/// A victim and an attacker, who has so long for each attack.
struct Guests<'a> {
    field: Field<'a>,
    time: Duration,
}

impl Guests<'_> {
    /// Watches the victim beside an attacker that spins, or that does nothing at all.
    fn beside(&mut self, spins: bool) -> Result<Undisturbed> {
        self.field.ready()?;
        if spins {
            self.field.busy(TICK + WATCHED)?;
        }
        self.field.idle(TICK)?;
        self.field.ticks.clear();
        let before = self.field.snapshot()?;
        self.field.idle(WATCHED)?;
        let after = self.field.snapshot()?;
        let ticks = std::mem::take(&mut self.field.ticks);
        Ok(Undisturbed { work: Work::of(ticks.iter()), wanting: after.victim_wanting_since(&before) })
    }

    /// What a spinning attacker costs the victim, by the processors that they share.
    fn beside_spinning(&mut self) -> Result<Option<f64>> {
        // The first seconds after boot are nobody's measure.
        self.field.idle(WATCHED)?;
        let mut rate = |spins| self.beside(spins).map(|watched| watched.work.rate().unwrap_or(0.0));
        let (idle, spinning) = (rate(false)?, rate(true)?);
        Ok((idle > 0.0).then(|| spinning / idle))
    }
}

impl Scene for Guests<'_> {
    type Attack = &'static Attack;

    fn listed(attack: Self::Attack) -> Listed {
        attack.into()
    }

    fn watch(&mut self, _: Neighbours) -> Result<Undisturbed> {
        self.beside(true)
    }

    fn round(&mut self, attack: Self::Attack) -> Result<Round> {
        self.field.ready()?;
        self.field.ticks.clear();
        self.field.attack(attack, self.time)
    }

    fn damage(&mut self) -> Result<Vec<String>> {
        self.field.damage()
    }

    fn end(self) -> Result<Vec<String>> {
        self.field.end()
    }
}

/// The whole result.
fn to_json(ok: bool, reports: &[Report], peers: &PeerReport, beside: &NeighbourReport) -> Value {
    let of_chips = || {
        reports
            .iter()
            .flat_map(|report| report.series.verdicts.iter().map(|verdict| (report.chip.name(), verdict)))
    };
    let all = || of_chips().chain(peers.series.verdicts.iter().map(|verdict| ("peers", verdict)));
    let attacks: Vec<_> = of_chips()
        .map(|(chip, verdict)| {
            let mut attack = verdict.to_json();
            if let Some(fields) = attack.as_object_mut() {
                fields.insert("chip".into(), chip.into());
            }
            attack
        })
        .collect();
    // A VM that hangs the engine is not held to a throughput: what counts is that the engine comes back.
    let least = all()
        .filter_map(|(kind, verdict)| Some((verdict.throughput()?, kind, verdict.attack.name)))
        .min_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let problems = reports
        .iter()
        .flat_map(|report| &report.series.problems)
        .chain(&peers.series.problems)
        .chain(&beside.problems);
    let foreign = all().filter_map(|(_, verdict)| verdict.noted.foreign_accesses).sum::<u64>();
    let foreign_beside =
        beside.verdicts.iter().filter_map(|verdict| verdict.judged().noted.foreign_accesses).sum::<u64>();
    let residue = all().map(|(_, verdict)| verdict.noted.residue_bytes).sum::<u64>();
    let (worst_p99, worst_stall) = (beside.worst_p99_ratio(), beside.worst_stall_ms());
    json!({
        "ok": ok,
        "attacks": attacks,
        "peers": peers.series.verdicts.iter().map(Verdict::to_json).collect::<Vec<_>>(),
        "neighbour": beside.verdicts.iter().map(neighbour::Verdict::to_json).collect::<Vec<_>>(),
        "worst_p99_ratio": worst_p99.map(|(ratio, _)| (ratio * 1000.0).round() / 1000.0),
        "worst_p99_ratio_under": worst_p99.map(|(_, name)| name),
        "worst_stall_ms": worst_stall.map(|(stall, _)| (stall * 1000.0).round() / 1000.0),
        "worst_stall_ms_under": worst_stall.map(|(_, name)| name),
        "foreign_accesses": foreign + foreign_beside,
        "residue_bytes": residue + beside.verdicts.iter().map(neighbour::Verdict::residue_bytes).sum::<u64>(),
        "victim_throughput_ratio_min": least.map(|(least, ..)| (least * 1000.0).round() / 1000.0),
        "victim_throughput_ratio_min_under": least.map(|(_, kind, name)| format!("{kind} {name}")),
        "hangs_left_out": all().filter(|(_, verdict)| verdict.attack.hang)
            .map(|(kind, verdict)| format!("{kind} {}", verdict.attack.name)).collect::<Vec<_>>(),
        "failsafe_decided_us_max": all().filter_map(|(_, verdict)| verdict.noted.fail_safe_us).max(),
        "beside_spinning": reports.iter()
            .map(|report| json!({ "chip": report.chip.name(), "victim_throughput_ratio": report.beside_spinning }))
            .collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
        "seconds": reports.iter().map(|report| report.wall).chain([peers.wall, beside.wall]).sum::<Duration>().as_secs(),
    })
}

/// The documentation's file.
fn page(tree: &Path) -> PathBuf {
    tree.join("docs/attacks.md")
}
