//! Set-up, tests and benchmarks of the project: `cargo xtask setup`, `cargo xtask test`, `cargo xtask bench`,
//! `cargo xtask attack`, `cargo xtask soak`, `cargo xtask stress`, `cargo xtask fuzz`, `cargo xtask nightly`,
//! `cargo xtask golden`, `cargo xtask deb`, `cargo xtask pack`.

mod attack;
mod bench;
mod cases;
mod deb;
mod fuzz;
mod golden;
mod guest;
mod looked;
mod nightly;
mod nvk;
mod pack;
mod recording;
mod report_page;
mod run_case;
mod sass;
mod setup;
mod soak;
mod stress;
mod test;
mod workshop;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Set-up, tests and benchmarks of gpuvmk")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch QEMU and the guest kernels and build the guest programs; offline from then on.
    Setup(setup::Arguments),
    /// Boot one stock guest, show what it says, and judge it.
    Guest(guest::Arguments),
    /// Fetch Mesa's Vulkan driver for guests, and edit it for Hopper.
    Nvk(nvk::Arguments),
    /// Run the host's tests and every guest test.
    Test(test::Arguments),
    /// Attack a vGPU beside a guest at work, and judge what came of it.
    Attack(attack::Arguments),
    /// Compare the software GPU's execution of machine code with what a GPU gave.
    Sass(sass::Arguments),
    /// VMs come, work, crash and go at random; everything that they had must come back.
    Soak(soak::Arguments),
    /// Guests sleep for very many fences; each must be told of the end of its work.
    Stress(stress::Arguments),
    /// Measure mediated against native.
    Bench(bench::Arguments),
    /// Run the fuzzers: hostile input of every kind, and what must hold all the same.
    Fuzz(fuzz::Arguments),
    /// Run what takes too long for every change: fuzzers, every attack, endurance, nested machines,
    /// benchmarks.
    Nightly(nightly::Arguments),
    /// Record how each kernel probes its GPU, for the tests that play those traces.
    Golden(golden::Arguments),
    /// Make a Debian package.
    Deb(deb::Arguments),
    /// Make a folder that runs guests on any x86-64 machine with an NVIDIA GPU, without network.
    Pack(pack::Arguments),
}

/// Seconds as JSON results have them, to a tenth.
fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<bool> {
    let arguments = Arguments::parse();
    gpuvmk_lab::interrupt::watch()?;
    match arguments.command {
        Command::Setup(arguments) => setup::run(&arguments).map(|()| true),
        Command::Guest(arguments) => guest::run(&arguments),
        Command::Nvk(arguments) => nvk::run(&arguments).map(|()| true),
        Command::Test(arguments) => test::run(&arguments),
        Command::Attack(arguments) => attack::run(&arguments),
        Command::Sass(arguments) => sass::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Stress(arguments) => stress::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Nightly(arguments) => nightly::run(&arguments),
        Command::Golden(arguments) => golden::run(&arguments),
        Command::Deb(arguments) => deb::run(&arguments),
        Command::Pack(arguments) => pack::run(&arguments),
    }
}
