//! A program of CUDA's driver interface for guests with NVIDIA's own driver: contexts, memory, copies.
//!
//! It is started by a guest's `/init` with Debian's libcuda beside it (docs/nvidia.md), loads that at run
//! time, runs the [`checks`] that its arguments name, and prints exactly one line of JSON, as the other guest
//! programs do. Every byte that comes back is compared with what was sent; nothing passes because the driver
//! said so.

mod checks;
mod driver;
mod gpu;
mod options;
mod stdout;

use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error:#}; usage: gpuvmk-cuda [name=NAME] [gpu=N] [checks=NAME,...|GROUP]");
            return ExitCode::from(2);
        }
    };
    let outcome = checks::run(&options);
    let ok = outcome.ok();
    println!("{}", outcome.line(&options.name, options.gpu.into()));
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
