//! `gpuvmk generate`: what packages bring along, made from the command line itself so that it is never out of date.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, Subcommand};
use clap_complete::Shell;

/// Arguments of `gpuvmk generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuvmk generate man --out /usr/local/share/man/man1\n  \
                        gpuvmk generate completions bash > /etc/bash_completion.d/gpuvmk")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write man pages: one for each command.
    Man {
        /// A folder that is there.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print completions for a shell.
    Completions {
        /// Which.
        shell: Shell,
    },
}

pub(super) fn run(args: &Args, mut command: Command) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Man { out } => {
            clap_mangen::generate_to(command, out)
                .with_context(|| format!("Cannot write man pages to {}", out.display()))?;
        }
        What::Completions { shell } => {
            clap_complete::generate(*shell, &mut command, "gpuvmk", &mut std::io::stdout());
        }
    }
    Ok(ExitCode::SUCCESS)
}
