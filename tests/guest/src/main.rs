//! What runs inside a test guest: one static binary that is `/init` and every test program.
//!
//! As process 1 it mounts the kernel's file systems, loads nouveau, runs the programs that the kernel command
//! line names, and powers the machine off ([`init`]). Called with a program's name it is that program
//! ([`programs`]). Programs speak to nouveau by raw DRM ioctls ([`drm`]) and to the GPU by command words that
//! they build themselves ([`push`], [`engine`]); no user-space driver is involved that could hide a fault.
//!
//! Each program prints exactly one line of JSON on its standard output: `{"prog","ok",figures,"error"}`.

mod attack;
mod chip;
mod cmdline;
mod compute;
mod device_memory;
mod dma_memory;
mod drm;
mod engine;
mod init;
mod kmsg;
mod net;
mod pattern;
mod programs;
mod push;
mod report;
mod stamps;
mod stats;
mod sys;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::run();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match programs::run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(2)
        }
    }
}
