//! `gpuvmk registers [--chip CHIP] [--format FORMAT]`

use std::process::ExitCode;

use clap::ValueEnum;

use crate::chip::register_doc;
use crate::chip::register_sets::{ALL, RegisterSet};
use crate::chip::registers::Reg;

/// Arguments of `gpuvmk registers`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvmk registers | grep PFIFO\n  gpuvmk registers --chip GH100 --lookup 0xbb0090"
)]
pub(super) struct Args {
    /// Whose registers.
    #[arg(long, default_value = "GF100", value_parser = chip)]
    chip: &'static RegisterSet,
    /// How to print the table.
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "lookup")]
    format: Format,
    /// Print only the register at this offset in BAR0.
    #[arg(long, value_name = "OFFSET", value_parser = offset)]
    lookup: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line a register: offset, unit, name, policy.
    Text,
    /// The page docs/registers.md, with all chips.
    Markdown,
}

fn chip(text: &str) -> Result<&'static RegisterSet, String> {
    let known = || ALL.map(|set| set.chip).join(", ");
    RegisterSet::by_name(text).ok_or_else(|| format!("no chip is called `{text}`; there are {}", known()))
}

fn offset(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => u32::from_str_radix(text, 16),
    };
    parsed.map_err(|_| format!("`{text}` is not a hexadecimal offset"))
}

#[expect(clippy::unnecessary_wraps, reason = "all subcommands have one signature")]
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(offset) = args.lookup {
        let Some(definition) = args.chip.definition(Reg(offset & !3)) else {
            println!("{offset:#08x}: not in the tables: reads back what was written, touches nothing");
            return Ok(ExitCode::FAILURE);
        };
        println!(
            "{:#08x} {} {} ({:?}): {}",
            offset, definition.unit, definition.name, definition.policy, definition.doc
        );
        return Ok(ExitCode::SUCCESS);
    }
    match args.format {
        Format::Markdown => print!("{}", register_doc::markdown()),
        Format::Text => {
            for register in args.chip.index().definitions() {
                let family = if register.count > 1 { format!("[{}]", register.count) } else { String::new() };
                println!(
                    "{:#08x} {:10} {}{family} {:?}",
                    register.offset, register.unit, register.name, register.policy
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
