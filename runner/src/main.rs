//! The runner of a pack: the guest suite and its figures on a machine that has nothing but Linux and a GPU.
//!
//! Two processes. The [`supervisor`], started by the pack's script, unpacks, gives up root, starts the
//! worker, and ends it when its time is up; it prints one JSON object as the last line whatever happens. The
//! [`worker`] runs the steps of the [`suite`] and notes what came of each. Nothing here needs a network, a
//! package manager or a compiler, and nothing is left running: every process ends with the one that started
//! it.

mod cuda;
mod figures;
mod native;
mod options;
mod papers;
mod policies;
mod record;
mod step;
mod suite;
mod supervisor;
mod vulkan;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use options::Options;

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let options = Options::parse();
    let done = gpuvmk_lab::interrupt::watch().and_then(|()| match &options.worker {
        Some(folder) => worker::run(&options, folder),
        None => supervisor::run(&options),
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gpuvmk-runner: {error:#}");
            ExitCode::from(2)
        }
    }
}
