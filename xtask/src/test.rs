//! `cargo xtask test`: the host's tests, then every guest case.

mod card;
mod guest_page;
mod host_files;
mod host_tests;
pub mod inner;
pub mod kvm;
mod nested;
mod packaging;
mod side_by_side;

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::nvidia;
use serde_json::json;

use crate::attack;
use crate::cases::{self, Case};
use crate::fuzz;
use crate::run_case::{self, CaseResult};
use crate::soak;
use crate::workshop::{Workshop, build_gpuvmk};
use guest_page::Extent;

/// The name under which the host's tests can be chosen.
const HOST: &str = "host";

/// The name under which the fuzzers' smoke test can be chosen.
const FUZZ: &str = "fuzz";

/// The name under which the endurance run's short form can be chosen.
const SOAK: &str = "soak";

/// The name under which the short run of attacks can be chosen.
const ATTACKS: &str = "attacks";

/// The name under which what is in packaging/ can be chosen.
const PACKAGING: &str = "packaging";

/// What to test.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A part alone that is not in the usual run
    #[arg(value_enum)]
    part: Option<kvm::Part>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// Only cases whose name contains this; `host` is the host's tests, `fuzz` a few seconds of each fuzzer
    /// (only where it is named), `soak` less than a minute of VMs that come and go, `attacks` a short run of
    /// hostile guests, `packaging` alert rules and examples. May be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// How long each fuzzer runs
    #[arg(long, value_name = "S", default_value_t = 2)]
    fuzz_seconds: u64,
    /// Also the guest cases that only `cargo xtask nightly` runs
    #[arg(long)]
    all: bool,
    /// Guest cases alone: no host tests, packaging, soak nor attacks
    #[arg(long)]
    guests: bool,
    /// So many guests at a time, if their cases are of one guest each; as many as there are processors, if
    /// not given
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// List the cases and do nothing
    #[arg(long)]
    list: bool,
    /// Also fetch Debian's firmware package (about 100 MB), and run the cases that need it; once it is there,
    /// they run without this
    #[arg(long)]
    debian_firmware: bool,
    /// Write what guests passed into the table of docs/guests.md: with --all and without --only the table of
    /// this run, else what is new in its rows
    #[arg(long)]
    write_docs: bool,
    /// Where logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/xtask-test")]
    logs: PathBuf,
    /// A gpuvmk to use instead of building one
    #[arg(long, value_name = "FILE")]
    gpuvmk: Option<PathBuf>,
}

impl Arguments {
    /// The gpuvmk to test, built if none is named.
    fn gpuvmk(&self) -> Result<PathBuf> {
        match &self.gpuvmk {
            Some(path) => path.canonicalize().with_context(|| format!("Cannot find {}", path.display())),
            None => build_gpuvmk(),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.names(name)
    }

    /// Whether a guest case is to run: those that are nightly's only with `--all`, or by their names.
    fn wants_case(&self, case: &Case) -> bool {
        self.wants(&case.name) && (!case.nightly || self.all || self.list || !self.only.is_empty())
    }

    /// How much of the guest cases that is.
    fn extent(&self) -> Extent {
        if self.all && self.only.is_empty() { Extent::Whole } else { Extent::Part }
    }

    /// Whether it is asked for, and not just not left out.
    fn names(&self, name: &str) -> bool {
        self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    if let Some(part) = arguments.part {
        return kvm::run(part, arguments);
    }
    let debian = arguments.debian_firmware || Firmware::debian_is_there(&Cache::open()?);
    // Asked for by its name, it is fetched and built; once it is there, it belongs to what is usual.
    let named = arguments.names("nvidia") || arguments.only.iter().any(|part| part.contains("nvidia"));
    let nvidia_named = named && nvidia::is_wanted();
    let cache = Cache::open()?;
    let cases: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| arguments.wants_case(case) && (debian || !case.needs_debian_firmware()))
        .filter(|case| nvidia_named || case.nvidia_kernels().all(|series| nvidia::is_there(&cache, series)))
        .collect();
    if arguments.list {
        for case in &cases {
            println!("{}{}", case.name, if case.nightly { " (nightly)" } else { "" });
        }
        return Ok(true);
    }
    let [host_wanted, soak_wanted, attacks_wanted, packaging_wanted] =
        [HOST, SOAK, ATTACKS, PACKAGING].map(|name| !arguments.guests && arguments.wants(name));
    // A build of their own takes longer than they do; host tests try the corpora and mutations of them.
    let fuzz_wanted = arguments.names(FUZZ);
    ensure!(
        host_wanted || fuzz_wanted || soak_wanted || attacks_wanted || packaging_wanted || !cases.is_empty(),
        "No case has such a name: see 'cargo xtask test --list'"
    );

    // What is in packaging/ is looked at by programs that use one processor.
    let (host, packaging) = thread::scope(|scope| {
        let packaging = scope.spawn(|| part(packaging_wanted, || packaging::check().map(said_above)));
        (part(host_wanted, host_tests::run), packaging.join())
    });
    let (host, packaging) =
        (host?, packaging.map_err(|_| anyhow!("a thread that looked at packaging/ panicked"))??);
    let fuzzers = part(fuzz_wanted, || fuzz::smoke(arguments.fuzz_seconds).map(said_above))?;
    let (results, guests_wall) = timed(|| guest_tests(&cases, arguments))?;
    let soak =
        part(soak_wanted, || soak::short(&arguments.logs, arguments.gpuvmk.as_deref()).map(said_above))?;
    let attacks = part(attacks_wanted, || attacks(arguments))?;
    let beside = [
        ("host tests", host),
        ("packaging", packaging),
        ("fuzzers", fuzzers),
        ("soak", soak),
        ("attacks", attacks),
    ];
    let of_parts =
        beside.iter().filter_map(|(name, part)| part.as_ref().map(|part| (*name, &part.problems, part.wall)));
    let of_cases = results.iter().map(|result| (result.name.as_str(), &result.problems, result.wall));
    let (passed, failed): (Vec<_>, Vec<_>) =
        of_parts.chain(of_cases).partition(|(_, problems, _)| problems.is_empty());
    let ok = failed.is_empty();

    // What failed comes last, with the reasons: of a long log people see the end.
    println!();
    for (name, problems, wall) in passed.into_iter().chain(failed) {
        println!("{}", line(name, problems.is_empty(), wall));
        problems.iter().take(MOST_PROBLEMS).for_each(|problem| println!("    {problem}"));
    }
    println!("{}", if ok { "all passed" } else { "FAILED" });
    if arguments.write_docs {
        guest_page::write(&cases, &results, arguments.extent())?;
    }
    if arguments.json {
        let [host, packaging, fuzzers, soak, attacks] = beside.map(|(_, part)| part);
        let passed = |part: &Option<Part>| part.as_ref().map(|part| part.problems.is_empty());
        let seconds = |part: &Option<Part>| part.as_ref().map(|part| part.wall.as_secs());
        let cases: Vec<_> = results.iter().map(CaseResult::to_json).collect();
        println!(
            "{}",
            json!({
                "ok": ok, "host_tests": passed(&host), "packaging": passed(&packaging), "fuzzers": passed(&fuzzers), "soak": passed(&soak),
                "attacks": passed(&attacks), "cases": cases,
                "seconds": {
                    "host_tests": seconds(&host), "fuzzers": seconds(&fuzzers), "cases": guests_wall.as_secs(),
                    "soak": seconds(&soak), "attacks": seconds(&attacks),
                },
            })
        );
    }
    Ok(ok)
}

/// What came of a part of the tests that is no guest case.
#[derive(Debug)]
struct Part {
    /// What was wrong; empty if it passed.
    problems: Vec<String>,
    wall: Duration,
}

/// As many problems of a part or case are said again at the end.
const MOST_PROBLEMS: usize = 12;

fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let done = run()?;
    Ok((done, start.elapsed()))
}

/// Runs a part, if it is wanted.
fn part(wanted: bool, run: impl FnOnce() -> Result<Vec<String>>) -> Result<Option<Part>> {
    if !wanted {
        return Ok(None);
    }
    let (problems, wall) = timed(run)?;
    Ok(Some(Part { problems, wall }))
}

/// The problems of a part that says them itself, when they occur.
fn said_above(ok: bool) -> Vec<String> {
    if ok { Vec::new() } else { vec!["its output, above, says what".to_owned()] }
}

/// What is said of a case or a part.
fn line(name: &str, ok: bool, wall: Duration) -> String {
    format!("{name:32} {:6} {:6.1} s", outcome(ok), wall.as_secs_f64())
}

fn outcome(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

fn attacks(arguments: &Arguments) -> Result<Vec<String>> {
    attack::short(&arguments.logs.join("attacks"), arguments.gpuvmk.as_deref())
}

fn guest_tests(cases: &[Case], arguments: &Arguments) -> Result<Vec<CaseResult>> {
    if cases.is_empty() {
        return Ok(Vec::new());
    }
    let kinds: BTreeSet<_> = cases.iter().flat_map(Case::kinds).collect();
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
    // More would be faster, since a guest waits for a third of its time; but a kernel whose emulated
    // processors are not emulated for long may hang while it starts them.
    let usual = || thread::available_parallelism().ok().map(NonZero::get);
    let jobs = arguments.jobs.map(NonZero::get).or_else(usual).unwrap_or(1);
    for (series, release) in workshop.kernels() {
        eprintln!("guest kernel {series}: {release}");
    }
    eprintln!(
        "guests run on {}, {jobs} at a time; logs in {}",
        workshop.accelerator().name(),
        arguments.logs.display()
    );
    side_by_side::run(cases, jobs, |case| {
        let result = run_case::run(&workshop, case);
        // At once: another case may have something to say.
        let problems: String = result.problems.iter().map(|problem| format!("\n    {problem}")).collect();
        eprintln!("{}{problems}", line(&result.name, result.ok(), result.wall));
        result
    })
}
