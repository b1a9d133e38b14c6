//! `gpuvmk generate`: what packages bring along, made from the command line itself so that it is never out of
//! date.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, Subcommand};
use clap_complete::Shell;

use super::output::print;
use crate::frontend::vfio_user::no_migration;

/// Arguments of `gpuvmk generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuvmk generate man --out /usr/local/share/man/man1\n  \
                        gpuvmk generate no-migration --out /usr/local/share/gpuvmk/no-migration.vdi\n  \
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
    /// Write the image with which QEMU refuses to migrate a machine with a vGPU.
    #[command(
        after_help = "For QEMU: -blockdev driver=vdi,node-name=gpuvmk-no-migration,read-only=on,file.driver=file,file.filename=FILE\n\
                      Back ends that make their socket themselves write such a file beside it (docs/guests.md)."
    )]
    NoMigration {
        /// The file.
        #[arg(long, value_name = "FILE")]
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
        What::NoMigration { out } => {
            std::fs::write(out, no_migration::image())
                .with_context(|| format!("Cannot write {}", out.display()))?;
        }
        What::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut command, "gpuvmk", &mut text);
            print(&String::from_utf8_lossy(&text))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
