//! `gpuvmk trace lookup ADDRESS [VALUE]`

use std::process::ExitCode;

use super::input::named_set;
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_chip::registers::Reg;
use gpuvmk_output::say;

/// Arguments of `gpuvmk trace lookup`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvmk trace lookup 0x2140 0x11\n  gpuvmk trace lookup --chip GH100 0xbb0090"
)]
pub struct Args {
    /// Whose register: a chip of gpuvmk's, or with --rnndb one of the database.
    #[arg(long, default_value = "GF100")]
    chip: String,
    /// Offset in BAR0, hexadecimal.
    #[arg(value_parser = number)]
    address: u32,
    /// A value of the register, hexadecimal.
    #[arg(value_parser = number)]
    value: Option<u32>,
}

fn number(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16)
        .map_err(|_| format!("`{text}` is no hexadecimal number of at most 32 bits"))
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let address = args.address & !3;
    let own = RegisterSet::by_name(&args.chip);
    let set = named_set(&args.chip)?;
    let Some(definition) = set.definition(Reg(address)) else {
        let does = if own.is_some() { ": reads back what was written, touches nothing" } else { "" };
        say!("{address:#08x}: not in the tables of {}{does}", set.chip)?;
        return Ok(ExitCode::FAILURE);
    };
    let index = address.saturating_sub(definition.offset).checked_div(definition.stride);
    let index = index.filter(|_| definition.count > 1).map(|index| format!("[{index}]")).unwrap_or_default();
    // Effects of accesses are known for gpuvmk's own chips.
    if own.is_some() {
        say!("{address:#08x} {} {}{index} ({:?})", definition.unit, definition.name, definition.policy)?;
        say!("{}", definition.doc)?;
    } else {
        say!("{address:#08x} {} {}{index}", definition.unit, definition.name)?;
    }
    say!("Source: {}", definition.source)?;
    for field in definition.fields {
        match args.value {
            Some(value) => {
                say!("  {:2}:{:<2} {} = {:#x}", field.high, field.low, field.name, field.get(value))?;
            }
            None => say!("  {:2}:{:<2} {}", field.high, field.low, field.name)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
