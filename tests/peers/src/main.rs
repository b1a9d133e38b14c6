//! Hostile processes at gpuvmk's sockets: in place of a QEMU at a device backend, and in place of a device
//! backend at the aggregator. `cargo xtask attack --peers` starts this program beside a guest at work, once
//! for each attack.
//!
//! The attack's end is told in one line of JSON; the program then keeps what it holds until its standard
//! input ends, so that the host can count while the attacker is still there.

mod aggregator;
mod client;
mod co_tenant;
mod device;
mod files;
mod findings;
mod honest;
mod neighbour;
mod random;
mod raw;
mod stalls;
#[path = "../../common/tenant.rs"]
mod tenant;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use gpuvmk_attacks::Outcome;

use findings::Findings;

/// Make one attack.
#[derive(Debug, Parser)]
struct Arguments {
    /// The attack
    name: String,
    /// The device backend's vfio-user socket
    #[arg(long)]
    device: PathBuf,
    /// The aggregator's socket
    #[arg(long)]
    aggregator: PathBuf,
    /// How long attacks last that have no end of their own
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// A number that child processes of an attack are told
    #[arg(long, default_value_t = 0)]
    step: u64,
}

/// What an attack needs to know.
#[derive(Debug)]
pub struct Scene {
    device: PathBuf,
    aggregator: PathBuf,
    time: Duration,
    step: u64,
    start: Instant,
    begun: bool,
    /// Deferred until the host has counted.
    kept: Vec<Box<dyn std::any::Any>>,
}

impl Scene {
    /// True until the attack's time is up.
    pub fn goes_on(&self) -> bool {
        self.start.elapsed() < self.time
    }

    /// The attack's time begins now: what came before was needed for it.
    pub fn begin(&mut self) {
        self.start = Instant::now();
        self.begun = true;
    }

    /// The same, the first time only.
    pub fn begin_once(&mut self) {
        if !self.begun {
            self.begin();
        }
    }

    /// Keeps something until the host has counted.
    pub fn keep(&mut self, value: impl std::any::Any) {
        self.kept.push(Box::new(value));
    }

    /// This program, to make `attack` with `step` in a process of its own.
    pub fn child(&self, attack: &str, step: u64) -> Result<std::process::Command> {
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command.arg(attack).arg("--device").arg(&self.device).arg("--aggregator").arg(&self.aggregator);
        command.args(["--step", &step.to_string()]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::null());
        Ok(command)
    }
}

fn attack(name: &str, scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    if let Some(made) = device::attack(name, scene, findings) {
        return made;
    }
    match aggregator::attack(name, scene, findings) {
        Some(made) => made,
        None => bail!("There is no attack '{name}'"),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut scene = Scene {
        device: arguments.device,
        aggregator: arguments.aggregator,
        time: Duration::from_secs_f64(arguments.seconds.clamp(0.1, 600.0)),
        step: arguments.step,
        start: Instant::now(),
        begun: false,
        kept: Vec::new(),
    };
    match arguments.name.as_str() {
        "neighbour" => return told(neighbour::work(&scene.aggregator)),
        "co-tenant" => return told(co_tenant::work(&scene.aggregator)),
        _ => {}
    }
    if let Some(done) = stalls::child(&arguments.name, &mut scene) {
        return told(done);
    }
    let mut findings = Findings::default();
    let outcome = attack(&arguments.name, &mut scene, &mut findings);
    println!("{}", findings.to_json(outcome));
    // Nobody writes: this waits for the end.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}

/// What a child, or the neighbour, came to.
fn told(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
