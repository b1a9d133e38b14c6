//! The `gpuvmk` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuvmk::cli::main()
}
