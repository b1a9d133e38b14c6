//! A Vulkan test program for guests with Mesa's NVK: what the driver lists, transfers, and compute shaders.
//!
//! It is started by a guest's `/init` with the Vulkan loader and one driver beside it (see docs/nvk.md),
//! loads libvulkan at run time, runs the [`checks`] that its arguments name, and prints exactly one line of
//! JSON, as the other guest programs do. Every result is compared with what the processor computes; nothing
//! passes because the driver said so.
//!
//! Not here: graphics, images, several queues. They would show nothing about the virtual GPU that these do
//! not.

mod checks;
mod options;
mod shaders;
mod vulkan;

use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&words) {
        Ok(options) => options,
        Err(error) => {
            eprintln!(
                "{error:#}; usage: gpuvmk-nvk [name=NAME] [gpu=N] [driver=NAME] [sm=N] [times=N] [rounds=N] [checks=NAME,...|GROUP]"
            );
            return ExitCode::from(2);
        }
    };
    let outcome = checks::run(&options);
    let ok = outcome.ok();
    println!("{}", outcome.line(&options.name, options.gpu));
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
