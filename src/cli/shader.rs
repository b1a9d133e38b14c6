//! `gpuvmk shader`: shaders' machine code as text, and kernels run without a card.
//!
//! It is done by `gpuvmk-shader`: the daemons' program reads no cubins. This process becomes it.

use std::process::ExitCode;

use gpuvmk_companion::ShaderCommand;

use super::companion::Companion;

/// The program that does it.
const SHADER: Companion = Companion {
    name: "gpuvmk-shader",
    folder: "shader",
    task: "Shaders are read and run",
    from_sources: "cargo run --release -- shader",
};

/// Arguments of `gpuvmk shader`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: ShaderCommand,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    SHADER.start(|_| args.command.words())
}
