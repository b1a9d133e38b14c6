//! `cargo xtask test`: the host's tests, then every guest case.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::{Cache, source_tree};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::interrupt;
use serde_json::json;

use crate::attack;
use crate::cases::{self, Case};
use crate::fuzz;
use crate::run_case::{self, CaseResult};
use crate::soak;
use crate::workshop::Workshop;

/// The name under which the host's tests can be chosen.
const HOST: &str = "host";

/// The name under which the fuzzers' smoke test can be chosen.
const FUZZ: &str = "fuzz";

/// The name under which the endurance run's short form can be chosen.
const SOAK: &str = "soak";

/// The name under which the short run of attacks can be chosen.
const ATTACKS: &str = "attacks";

/// What to test.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// Only cases whose name contains this; `host` is the host's tests, `fuzz` a few
    /// seconds of each fuzzer, `soak` a minute of VMs that come and go, `attacks` a short run of hostile guests. May be
    /// given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// How long each fuzzer runs
    #[arg(long, value_name = "S", default_value_t = 2)]
    fuzz_seconds: u64,
    /// List the cases and do nothing
    #[arg(long)]
    list: bool,
    /// Also fetch Debian's firmware package (about 100 MB), and run the cases that need it; once it is there, they run
    /// without this
    #[arg(long)]
    debian_firmware: bool,
    /// Where logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/xtask-test")]
    logs: PathBuf,
    /// A gpuvmk to use instead of building one
    #[arg(long, value_name = "FILE")]
    gpuvmk: Option<PathBuf>,
}

impl Arguments {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let debian = arguments.debian_firmware || Firmware::Debian.is_there(&Cache::open()?);
    let cases: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| arguments.wants(&case.name) && (debian || !case.needs_debian_firmware()))
        .collect();
    if arguments.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    let [host_wanted, fuzz_wanted, soak_wanted, attacks_wanted] =
        [HOST, FUZZ, SOAK, ATTACKS].map(|name| arguments.wants(name));
    ensure!(
        host_wanted || fuzz_wanted || soak_wanted || attacks_wanted || !cases.is_empty(),
        "No case has such a name: see 'cargo xtask test --list'"
    );

    let host_ok = if host_wanted { Some(host_tests()?) } else { None };
    let fuzz_ok = if fuzz_wanted { Some(fuzz::smoke(arguments.fuzz_seconds)?) } else { None };
    let results = guest_tests(&cases, arguments)?;
    let soak_ok = match soak_wanted {
        true => Some(soak::short(&arguments.logs, arguments.gpuvmk.as_deref())?),
        false => None,
    };
    let attacks_ok = if attacks_wanted { Some(attacks(arguments)?) } else { None };
    let beside = [("host tests", host_ok), ("fuzzers", fuzz_ok), ("soak", soak_ok), ("attacks", attacks_ok)];
    let ok = beside.iter().all(|(_, ok)| *ok != Some(false)) && results.iter().all(CaseResult::ok);

    println!();
    for (name, ok) in beside {
        if let Some(ok) = ok {
            println!("{name:32} {}", outcome(ok));
        }
    }
    for result in &results {
        println!("{:32} {:6} {:6.1} s", result.name, outcome(result.ok()), result.wall.as_secs_f64());
    }
    println!("{}", if ok { "all passed" } else { "FAILED" });
    if arguments.json {
        let cases: Vec<_> = results.iter().map(CaseResult::to_json).collect();
        println!(
            "{}",
            json!({ "ok": ok, "host_tests": host_ok, "fuzzers": fuzz_ok, "soak": soak_ok, "attacks": attacks_ok,
                    "cases": cases })
        );
    }
    Ok(ok)
}

fn outcome(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}

fn host_tests() -> Result<bool> {
    eprintln!("host tests");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(source_tree())
        .args(["test", "--workspace", "--quiet"])
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("Cannot start cargo test")?;
    Ok(status.success())
}

fn attacks(arguments: &Arguments) -> Result<bool> {
    attack::short(&arguments.logs.join("attacks"), arguments.gpuvmk.as_deref())
}

fn guest_tests(cases: &[Case], arguments: &Arguments) -> Result<Vec<CaseResult>> {
    if cases.is_empty() {
        return Ok(Vec::new());
    }
    let kinds: BTreeSet<_> = cases.iter().flat_map(Case::kinds).collect();
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
    eprintln!("guests run on {}; logs in {}", workshop.accelerator().name(), arguments.logs.display());
    let mut results = Vec::new();
    for case in cases {
        interrupt::check()?;
        let result = run_case::run(&workshop, case);
        eprintln!("{:32} {:6} {:6.1} s", result.name, outcome(result.ok()), result.wall.as_secs_f64());
        result.problems.iter().for_each(|problem| eprintln!("    {problem}"));
        results.push(result);
    }
    Ok(results)
}
