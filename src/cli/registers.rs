//! `gpuvmk registers [--chip CHIP] [--format FORMAT]`

use std::process::ExitCode;

use clap::ValueEnum;

use super::output::print;
use crate::chip::register_doc;
use crate::chip::register_index::RegisterIndex;
use crate::chip::register_sets::RegisterSet;

/// Arguments of `gpuvmk registers`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvmk registers | grep PFIFO\n  gpuvmk registers --chip GH100 --format markdown"
)]
pub(super) struct Args {
    /// Whose registers.
    #[arg(long, default_value = "GF100", value_parser = super::chip)]
    chip: &'static RegisterSet,
    /// How to print the table.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line a register: offset, unit, name, policy.
    Text,
    /// The page docs/registers.md, with all chips.
    Markdown,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args.format {
        Format::Markdown => print(&register_doc::markdown())?,
        Format::Text => {
            for register in args.chip.index().into_iter().flat_map(RegisterIndex::definitions) {
                let family = if register.count > 1 { format!("[{}]", register.count) } else { String::new() };
                let (offset, unit, name) = (register.offset, register.unit, register.name);
                say!("{offset:#08x} {unit:10} {name}{family} {:?}", register.policy)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
