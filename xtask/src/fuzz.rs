//! `cargo xtask fuzz`: builds the fuzzers and runs each for a while, as many at a time as there are
//! processors.
//!
//! A run begins with the inputs in the tree (`fuzz/corpus/TARGET`) and those that earlier runs found here
//! (`target/fuzz/corpus/TARGET`), and keeps what it finds in the latter. `--merge` takes the few of them that
//! together reach everything into the tree. docs/fuzzing.md has the rest.

mod build;
mod campaign;
mod merge;
mod outcome;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use gpuvmk_lab::cache::source_tree;
use gpuvmk_lab::interrupt;
use serde_json::json;

use self::build::Fuzzers;
use self::outcome::Outcome;

/// What to fuzz.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Run each target for so long, after its corpus
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// So many targets at a time; as many as there are processors, if not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Only this target; may be given several times
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// List the targets and do nothing
    #[arg(long)]
    list: bool,
    /// Put the smallest set of inputs that reaches all that was reached into fuzz/corpus, instead of running
    #[arg(long)]
    merge: bool,
}

/// Where inputs, logs and findings of the targets lie.
#[derive(Debug)]
struct Place {
    tree: PathBuf,
    work: PathBuf,
}

impl Place {
    fn new() -> Self {
        Self { tree: source_tree().join("fuzz"), work: build::target_folder().join("fuzz") }
    }

    /// Inputs in the tree.
    fn corpus(&self, target: &str) -> PathBuf {
        self.tree.join("corpus").join(target)
    }

    /// Inputs that runs on this machine found.
    fn found(&self, target: &str) -> PathBuf {
        self.work.join("corpus").join(target)
    }

    /// Inputs that broke something.
    fn findings(&self, target: &str) -> PathBuf {
        self.work.join("findings").join(target)
    }

    /// What the fuzzer says.
    fn log(&self, target: &str) -> PathBuf {
        self.work.join("logs").join(format!("{target}.log"))
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let place = Place::new();
    let all = build::targets(&place.tree)?;
    let targets: Vec<String> = all
        .iter()
        .filter(|name| arguments.target.is_empty() || arguments.target.contains(name))
        .cloned()
        .collect();
    for wanted in &arguments.target {
        ensure!(all.contains(wanted), "There is no target {wanted}: see 'cargo xtask fuzz --list'");
    }
    if arguments.list {
        targets.iter().for_each(|target| println!("{target}"));
        return Ok(true);
    }
    let fuzzers = Fuzzers::build(&targets)?;
    if arguments.merge {
        for target in &targets {
            interrupt::check()?;
            merge::run(&fuzzers, &place, target)?;
        }
        return Ok(true);
    }
    let jobs = arguments.jobs.map_or_else(processors, NonZero::get);
    let outcomes = run_each(&fuzzers, &place, &targets, Duration::from_secs(arguments.seconds), jobs)?;
    Ok(report(&outcomes, arguments.json))
}

/// Some seconds of each target, for the tests: finds what is broken everywhere, and that the corpora still
/// work.
pub fn smoke(seconds: u64) -> Result<bool> {
    let place = Place::new();
    let targets = build::targets(&place.tree)?;
    let fuzzers = Fuzzers::build(&targets)?;
    let outcomes = run_each(&fuzzers, &place, &targets, Duration::from_secs(seconds), processors())?;
    Ok(report(&outcomes, false))
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs every target, `jobs` at a time; the outcomes are in the targets' order.
fn run_each(
    fuzzers: &Fuzzers,
    place: &Place,
    targets: &[String],
    time: Duration,
    jobs: usize,
) -> Result<Vec<Outcome>> {
    let waiting = Mutex::new(targets.iter());
    let next = || waiting.lock().ok().and_then(|mut left| left.next());
    let work = || -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        while let Some(target) = next() {
            interrupt::check()?;
            eprintln!("fuzzing {target} for {} s", time.as_secs());
            let outcome = campaign::run(fuzzers, place, target, time)?;
            eprintln!("{}", outcome.line());
            outcomes.push(outcome);
        }
        Ok(outcomes)
    };
    let mut outcomes = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            outcomes.extend(worker.join().map_err(|_| anyhow!("a thread that ran fuzzers panicked"))??);
        }
        Ok(())
    })?;
    outcomes.sort_by_key(|outcome| targets.iter().position(|target| *target == outcome.target));
    Ok(outcomes)
}

fn report(outcomes: &[Outcome], json: bool) -> bool {
    let ok = outcomes.iter().all(Outcome::ok);
    println!();
    outcomes.iter().for_each(|outcome| println!("{}", outcome.line()));
    for outcome in outcomes.iter().filter(|outcome| !outcome.ok()) {
        println!("{}", outcome.explanation());
    }
    println!("{}", if ok { "nothing found" } else { "FOUND SOMETHING" });
    if json {
        let executions: u64 = outcomes.iter().map(|outcome| outcome.executions).sum();
        let targets: Vec<_> = outcomes.iter().map(Outcome::to_json).collect();
        println!("{}", json!({ "ok": ok, "executions": executions, "targets": targets }));
    }
    ok
}
