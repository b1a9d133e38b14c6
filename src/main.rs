//! The `gpuvmk` command.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuvmk::cli::main()
}
