//! `cargo xtask stress`: stock guests whose processes sleep for very many fences on many channels; each sleep
//! must end when its work does.
//!
//! Every kernel on every chip that it drives, one guest at a time, with two processors. On those, nouveau
//! before Linux 6.2 forgets sleepers by itself (docs/guests.md): such a kernel has a guest with one
//! processor, and one with two, whose driver's own losses are counted and forgiven. The guest's program
//! `sleepers` fails at the first sleep of more than a second, and says whether the work was not done or
//! nobody was told. `--native` puts the software GPU in front of the guest without an aggregator: what fails
//! there too is not the aggregator's doing.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gpuvmk_lab::chip::{Chip, GuestChip as _, USUAL};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;
use gpuvmk_lab::verdict::{self, Verdict};
use serde_json::{Value, json};

use crate::cases::Guest;
use crate::workshop::{self, Workshop};

/// Words for the guests' kernels: the program may run for long.
const WORDS: &[&str] = &["gpuvmk.limit=2900"];

/// How many sleeps, and where.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Sleeps of each guest
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    count: u64,
    /// The longest sleep that is not a failure, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    limit_ms: u64,
    /// Processors of each guest, if not one or two as its kernel can do
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// Threads that use one channel together
    #[arg(long, value_name = "N", default_value_t = 1)]
    sharing: u64,
    /// Only this guest, such as gf100-6.1, or all with this chip or kernel; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Guests that have the software GPU to themselves, without an aggregator
    #[arg(long)]
    native: bool,
    /// Record the guests' register accesses, in the logs
    #[arg(long)]
    trace: bool,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// Where logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/xtask-stress")]
    logs: PathBuf,
    /// A gpuvmk to use instead of building one
    #[arg(long, value_name = "FILE")]
    gpuvmk: Option<PathBuf>,
}

/// One guest.
#[derive(Debug)]
struct Place {
    name: String,
    chip: Chip,
    kernel: KernelSeries,
    cpus: u32,
    forgives: bool,
}

impl Place {
    /// The guests of a kernel.
    fn of(chip: Chip, kernel: KernelSeries, cpus: Option<u32>) -> Vec<Self> {
        let name = format!("{}-{kernel}", chip.name().to_lowercase());
        let (usual, forgetful) = (kernel.processors(), kernel.processors() == 1);
        let first = Self {
            name: name.clone(),
            chip,
            kernel,
            cpus: cpus.unwrap_or(usual),
            forgives: forgetful && cpus.is_some_and(|cpus| cpus > 1),
        };
        let second = Self { name: format!("{name}-smp"), chip, kernel, cpus: 2, forgives: true };
        if forgetful && cpus.is_none() { vec![first, second] } else { vec![first] }
    }
}

/// What came of one guest.
struct Outcome {
    name: String,
    wall: Duration,
    problems: Vec<String>,
    figures: Value,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let topology = if arguments.native { Topology::Native } else { Topology::Mediated };
    let wanted = |name: &str| {
        let is = |part: &String| name == part || name.split('-').any(|half| half == part);
        arguments.only.is_empty() || arguments.only.iter().any(is)
    };
    let places: Vec<Place> = USUAL
        .into_iter()
        .filter(|chip| topology == Topology::Mediated || chip.has_native_form())
        .flat_map(|chip| KernelSeries::ALL.map(|kernel| (chip, kernel)))
        .filter(|(chip, kernel)| chip.check_kernel(*kernel).is_ok())
        .flat_map(|(chip, kernel)| Place::of(chip, kernel, arguments.cpus))
        .filter(|place| wanted(&place.name))
        .collect();
    ensure!(!places.is_empty(), "No guest has such a name: they are called gf100-6.1 and so on");
    let kinds: BTreeSet<_> =
        places.iter().map(|place| (place.kernel, Firmware::for_kernel(place.kernel))).collect();
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;

    let mut outcomes = Vec::new();
    for place in &places {
        let outcome = one(&workshop, place, topology, arguments);
        println!("{}", line(&outcome));
        outcomes.push(outcome);
    }
    let ok = outcomes.iter().all(|outcome| outcome.problems.is_empty());
    println!("{}", if ok { "all passed" } else { "FAILED" });
    if arguments.json {
        let guests: Vec<Value> = outcomes.iter().map(to_json).collect();
        println!(
            "{}",
            json!({ "ok": ok, "topology": topology.name(), "count": arguments.count, "guests": guests })
        );
    }
    Ok(ok)
}

fn one(workshop: &Workshop, place: &Place, topology: Topology, arguments: &Arguments) -> Outcome {
    let start = Instant::now();
    let (problems, figures) = match sleep(workshop, place, topology, arguments) {
        Ok((verdict, mut problems)) => {
            problems.splice(0..0, verdict.problems);
            let figures = verdict.results.into_iter().find(|result| result.program == "sleepers");
            (problems, figures.map_or(Value::Null, |result| json!(result.figures)))
        }
        Err(error) => (vec![format!("{error:#}")], Value::Null),
    };
    Outcome { name: place.name.clone(), wall: start.elapsed(), problems, figures }
}

fn sleep(
    workshop: &Workshop,
    place: &Place,
    topology: Topology,
    arguments: &Arguments,
) -> Result<(Verdict, Vec<String>)> {
    let Place { name, chip, kernel, cpus, forgives } = place;
    let Arguments { count, limit_ms, sharing, .. } = arguments;
    let forgive = u8::from(*forgives);
    let program = format!("sleepers:count={count}:limit_ms={limit_ms}:sharing={sharing}:forgive={forgive}");
    // One for each guest of a run.
    let programs: &'static [&'static str] = vec!["probe", &*program.leak()].leak();
    let guest = Guest {
        cpus: *cpus,
        kernel_words: WORDS,
        trace: arguments.trace,
        ..Guest::new("vm1", *chip, *kernel, programs)
    };
    let mut rig = workshop.rig(name, topology, std::slice::from_ref(&guest))?;
    let mut machine = workshop.start_with_orders(name, guest.name, &rig, &guest, 0)?;
    let outcome = machine.wait(&mut |_| {})?;
    let verdict = verdict::judge(&outcome, &workshop::expected(&guest));
    let foreign = match topology {
        Topology::Mediated => rig.tenants()?,
        Topology::Native => Vec::new(),
    };
    let mut problems: Vec<String> = foreign
        .iter()
        .filter(|tenant| tenant.foreign_accesses != Some(0))
        .map(|tenant| format!("{} made engine accesses outside its own memory", tenant.name))
        .collect();
    problems.extend(rig.stop()?);
    Ok((verdict, problems))
}

fn line(outcome: &Outcome) -> String {
    let figure = |name: &str| outcome.figures.get(name).and_then(Value::as_u64).unwrap_or(0);
    let said: String = outcome.problems.iter().map(|problem| format!("\n    {problem}")).collect();
    format!(
        "{:14} {:6} {:7.1} s, {} sleeps, the longest {:.1} ms, {} above 20 ms, {} forgotten by the driver{said}",
        outcome.name,
        if outcome.problems.is_empty() { "ok" } else { "FAILED" },
        outcome.wall.as_secs_f64(),
        figure("sleeps"),
        Duration::from_micros(figure("longest_us")).as_secs_f64() * 1e3,
        figure("above_20_ms"),
        figure("lost_by_driver"),
    )
}

fn to_json(outcome: &Outcome) -> Value {
    json!({
        "name": outcome.name,
        "ok": outcome.problems.is_empty(),
        "problems": outcome.problems,
        "seconds": crate::tenths(outcome.wall),
        "figures": outcome.figures,
    })
}
