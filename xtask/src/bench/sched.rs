//! `cargo xtask bench sched`: stock guests that share a GPU under each policy, which changes while they work.
//! All figures are of the GPU's time as the software GPU knows it, except for what says how well the
//! aggregator knows it.

mod crowd;
mod hangs;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use gpuvmk_lab::chip::{Chip, GuestChip as _, USUAL};
use gpuvmk_lab::crowd::figures::{accounting_error, jain, part_error, weight_error};
use gpuvmk_lab::crowd::{Crowd, Stretch};
use gpuvmk_lab::firmware::Firmware;
use serde_json::{Value, json};

use self::crowd::GUESTS;
use super::{Arguments, median, round3};
use crate::workshop::Workshop;

/// Fairness among equals, by Jain's index.
const LEAST_JAIN: f64 = 0.99;
const MOST_WEIGHT_ERROR: f64 = 0.03;
const MOST_CAP_ERROR: f64 = 0.02;
const MOST_ACCOUNTING_ERROR: f64 = 0.02;
/// How busy a VM that is alone keeps the GPU, where the policy promises that, over that without a scheduler.
const LEAST_ALONE: f64 = 0.98;
const MOST_IDLE_CPU: f64 = 0.02;
/// One turn of each other VM.
const MOST_LIGHT_SLICES: f64 = (GUESTS - 1) as f64;

/// How long others may stand still because of a hang.
const MOST_HANG_P99_MS: f64 = 500.0;
const MOST_HANG_MS: f64 = 2000.0;
/// Hangs for each combination of chip, policy and penalties.
const HANGS: u32 = 100;

/// NVIDIA's turn with eight vGPUs.
const SLICE_MS: f64 = 2.0;
const SETTLE: Duration = Duration::from_millis(700);
const WATCH: Duration = Duration::from_secs(4);
const LONG_WATCH: Duration = Duration::from_secs(8);
const ALONE_WATCH: Duration = Duration::from_millis(1500);
const ALONE_ROUNDS: usize = 3;
/// A light VM's pause between submissions, in microseconds.
const LIGHT: &str = "light 10000";
/// What every other VM is told, and the rest, where short copies meet long ones: 64 KiB and 2 MiB.
const SHORT: &str = "busy 65536";
const LONG: &str = "busy 2097152";
const WEIGHTS: [u32; 3] = [1, 2, 4];
const CAP: u8 = 25;

/// All policies.
pub(super) const POLICIES: [&str; 8] =
    ["fifo", "best-effort", "credit", "band", "equal-share", "fixed-share", "weighted", "deadline"];
/// Those under which equals get the same.
const FAIR: [&str; 7] =
    ["best-effort", "credit", "band", "equal-share", "fixed-share", "weighted", "deadline"];
const BY_WEIGHT: [&str; 1] = ["weighted"];
/// Those that are compared on a mix of short and long copies.
const MIXED: [&str; 2] = ["fifo", "band"];
/// Those under which a VM that is alone has all of the GPU.
const CONSERVING: [&str; 5] = ["best-effort", "credit", "band", "weighted", "deadline"];

/// What one policy did.
type Figures = BTreeMap<&'static str, f64>;

pub(super) fn run(arguments: &Arguments) -> Result<bool> {
    let chips = arguments.chip.map_or_else(|| USUAL.to_vec(), |chip| vec![chip]);
    let mut problems = Vec::new();
    let mut report = BTreeMap::new();
    for chip in chips {
        let kernel = chip.usual_kernel();
        let kinds = BTreeSet::from([(kernel, Firmware::for_kernel(kernel))]);
        let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
        let found = Found::on(&workshop, chip, &arguments.policy)?;
        found.print(chip);
        problems.extend(found.problems().into_iter().map(|problem| format!("{chip}: {problem}")));
        report.insert(chip.to_string(), found);
    }
    let pauses = if arguments.policy.is_empty() { Some(hangs::provoke(HANGS)?) } else { None };
    if let Some(pauses) = &pauses {
        println!(
            "hangs: neighbours stand still for {:.0} ms at p99, {:.0} at most",
            pauses.p99_ms, pauses.max_ms
        );
        if pauses.p99_ms > MOST_HANG_P99_MS || pauses.max_ms > MOST_HANG_MS {
            problems.push(format!(
                "a hang stops others for {:.0} ms at p99 and {:.0} at most; {MOST_HANG_P99_MS} and {MOST_HANG_MS} are allowed",
                pauses.p99_ms, pauses.max_ms
            ));
        }
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    if arguments.json {
        // Of chosen policies some figures are not there.
        let worst = |name: &str, of: fn(f64, f64) -> f64| {
            let all = report.values().flat_map(|found| found.policies.values());
            all.filter_map(|figures| figures.get(name)).copied().reduce(of).map(round3)
        };
        let chips: BTreeMap<_, _> = report.iter().map(|(chip, found)| (chip, found.to_json())).collect();
        println!(
            "{}",
            json!({
                "ok": problems.is_empty(),
                "jain": worst("jain_promised", f64::min),
                "weight_error": worst("weight_error", f64::max),
                "cap_error": worst("cap_error", f64::max),
                "light_vm_p99_slices": worst("light_vm_p99_slices", f64::max),
                "alone": worst("alone", f64::min),
                "accounting_error": worst("accounting_error", f64::max),
                "idle_cpu": round3(report.values().map(|found| found.idle_cpu).fold(0.0, f64::max)),
                "hang_p99_ms": pauses.as_ref().map(|pauses| round3(pauses.p99_ms)),
                "hang_max_ms": pauses.as_ref().map(|pauses| round3(pauses.max_ms)),
                "policies": chips,
                "problems": problems,
            })
        );
    }
    Ok(problems.is_empty())
}

/// What was found on a chip.
#[derive(Debug)]
struct Found {
    policies: BTreeMap<&'static str, Figures>,
    idle_cpu: f64,
    wrong: Vec<String>,
}

impl Found {
    fn on(workshop: &Workshop, chip: Chip, chosen: &[String]) -> Result<Self> {
        eprintln!("{chip}: {GUESTS} guests boot");
        let mut crowd = crowd::start(workshop, chip)?;
        let idle_cpu = idle(&mut crowd)?;
        let mut policies = BTreeMap::new();
        let wanted = |name: &&str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
        for name in POLICIES.into_iter().filter(wanted) {
            eprintln!("{chip}: {name}");
            policies.insert(name, policy(&mut crowd, name)?);
        }
        alone(&mut crowd, &mut policies)?;
        Ok(Self { policies, idle_cpu, wrong: crowd::end(crowd, chip)? })
    }

    fn print(&self, chip: Chip) {
        println!("{chip}: the aggregator uses {:.4} of a processor while all guests are idle", self.idle_cpu);
        for (name, figures) in &self.policies {
            let words: Vec<_> = figures.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
            println!("{chip} {name:12} {}", words.join(", "));
        }
    }

    fn to_json(&self) -> Value {
        let rounded = |figures: &Figures| -> BTreeMap<&str, f64> {
            figures.iter().map(|(name, value)| (*name, (value * 1e4).round() / 1e4)).collect()
        };
        let policies: BTreeMap<_, _> =
            self.policies.iter().map(|(name, figures)| (*name, rounded(figures))).collect();
        json!({ "idle_cpu": round3(self.idle_cpu), "policies": policies })
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.wrong.clone();
        if self.idle_cpu > MOST_IDLE_CPU {
            problems.push(format!(
                "the idle aggregator uses {:.3} of a processor, {MOST_IDLE_CPU} is allowed",
                self.idle_cpu
            ));
        }
        let limits: [(&str, bool, f64); 6] = [
            ("jain_promised", true, LEAST_JAIN),
            ("weight_error", false, MOST_WEIGHT_ERROR),
            ("cap_error", false, MOST_CAP_ERROR),
            ("light_vm_p99_slices", false, MOST_LIGHT_SLICES),
            ("accounting_error", false, MOST_ACCOUNTING_ERROR),
            ("alone", true, LEAST_ALONE),
        ];
        for (policy, figures) in &self.policies {
            for (name, least, limit) in limits {
                let Some(value) = figures.get(name).copied() else { continue };
                if if least { value < limit } else { value > limit } {
                    let word = if least { "least" } else { "most" };
                    problems.push(format!("{policy}: {name} is {value:.4}, {limit} is the {word}"));
                }
            }
        }
        problems
    }
}

/// Part of a processor that the aggregator uses while nobody wants anything.
fn idle(crowd: &mut Crowd) -> Result<f64> {
    crowd.pass(Duration::from_secs(2))?;
    let before = crowd.aggregator_time()?;
    crowd.pass(LONG_WATCH)?;
    let used = crowd.aggregator_time()?.saturating_sub(before);
    Ok(used.as_secs_f64() / LONG_WATCH.as_secs_f64())
}

/// All figures of a policy but that of a VM alone.
fn policy(crowd: &mut Crowd, name: &'static str) -> Result<Figures> {
    let mut figures = Figures::new();
    crowd.set(None, &[&format!("policy={name}")])?;
    if name == "fixed-share" {
        // Together nearly the whole; what nobody sets is the VM's part of the VRAM.
        for vm in 0..GUESTS {
            crowd.set(Some(vm), &["fixed=12"])?;
        }
    }
    let before = crowd.had()?;
    let fair = FAIR.contains(&name);

    crowd.order(0..GUESTS, "busy")?;
    let equals = settled(crowd, LONG_WATCH)?;
    figures.insert("jain", jain(&equals.truth()));
    if fair {
        figures.insert("jain_promised", jain(&equals.truth()));
    }
    figures.insert("busy", equals.truth().iter().sum::<f64>() / equals.seconds);
    figures
        .insert("switches_per_second", equals.vms.iter().map(|vm| vm.switches).sum::<f64>() / equals.seconds);

    let (late_p50, late_p99) = crowd.lateness()?;
    figures.insert("late_p50_ms", late_p50);
    figures.insert("late_p99_ms", late_p99);

    if BY_WEIGHT.contains(&name) {
        let weights: Vec<u32> = WEIGHTS.into_iter().cycle().take(GUESTS).collect();
        for (index, weight) in weights.iter().enumerate() {
            crowd.set(Some(index), &[&format!("weight={}", weight * 100)])?;
        }
        let weighed = settled(crowd, LONG_WATCH)?;
        figures.insert("weight_error", weight_error(&weighed.truth(), &weights));
        for index in 0..GUESTS {
            crowd.set(Some(index), &["weight=100"])?;
        }
    }

    if MIXED.contains(&name) {
        crowd.order((0..GUESTS).step_by(2), SHORT)?;
        crowd.order((1..GUESTS).step_by(2), LONG)?;
        figures.insert("jain_mix", jain(&settled(crowd, WATCH)?.truth()));
        crowd.order(0..GUESTS, "busy")?;
    }

    if fair {
        crowd.order([GUESTS - 1], LIGHT)?;
        crowd.pass(SETTLE)?;
        // Setting the policy begins new statistics of waits.
        crowd.set(None, &[&format!("policy={name}")])?;
        let light = crowd.watch(WATCH)?;
        let wait = light.vms.last().map_or(0.0, |had| had.wait_p99_ms);
        figures.insert("light_vm_p99_slices", wait / SLICE_MS);
    }

    crowd.order(1..GUESTS, "rest")?;
    match name {
        "fixed-share" => {
            let taken = format!("fixed={CAP}");
            // Together no more than the whole: what others have counts, used or not.
            for other in 1..GUESTS {
                crowd.set(Some(other), &["fixed=10"])?;
            }
            crowd.set(Some(0), &[&taken])?;
            let capped = settled(crowd, WATCH)?;
            figures.insert("cap_error", part_error(&capped, CAP));
            crowd.set(Some(0), &["fixed=12"])?;
        }
        "weighted" => {
            crowd.set(Some(0), &[&format!("cap={CAP}")])?;
            let capped = settled(crowd, WATCH)?;
            figures.insert("cap_error", part_error(&capped, CAP));
            crowd.set(Some(0), &["cap=none"])?;
        }
        _ => {}
    }
    // An account is what has come together: all that was done under this policy.
    let all = Stretch::between(&before, &crowd.had()?, 0.0);
    figures.insert("accounting_error", accounting_error(&all.vms));
    let counted: f64 = all.vms.iter().map(|vm| vm.used / 1e6).sum();
    figures.insert("counted_over_truth", counted / all.truth().iter().sum::<f64>().max(f64::MIN_POSITIVE));
    Ok(figures)
}

fn settled(crowd: &mut Crowd, time: Duration) -> Result<Stretch> {
    crowd.pass(SETTLE)?;
    crowd.watch(time)
}

/// How busy a VM that is alone keeps the GPU, under each policy that lets it, over `fifo`: in turns, so that
/// both see the same machine. Work done in a time would be the machine's speed at that time as well.
fn alone(crowd: &mut Crowd, policies: &mut BTreeMap<&'static str, Figures>) -> Result<()> {
    crowd.order(1..GUESTS, "rest")?;
    crowd.order([0], "busy")?;
    let mut speed = |policy: &str| -> Result<f64> {
        crowd.set(None, &[&format!("policy={policy}")])?;
        crowd.pass(Duration::from_millis(200))?;
        let stretch = crowd.watch(ALONE_WATCH)?;
        Ok(stretch.truth().first().copied().unwrap_or(0.0) / stretch.seconds)
    };
    for name in CONSERVING {
        let Some(figures) = policies.get_mut(name) else { continue };
        let mut ratios = Vec::new();
        for _ in 0..ALONE_ROUNDS {
            let (before, under, after) = (speed("fifo")?, speed(name)?, speed("fifo")?);
            ratios.push(2.0 * under / (before + after));
        }
        figures.insert("alone", median(&ratios));
    }
    Ok(())
}
