//! `gpuvmk demo`: stock guests on one shared software GPU, from nothing to verified bytes.

use std::process::ExitCode;

use anyhow::Context;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::demo::{self, Options};
use gpuvmk_lab::interrupt;
use gpuvmk_lab::kernel::KernelSeries;

/// Arguments of `gpuvmk demo`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "QEMU and the guest kernels come from Debian's packages; they are kept in the folder that \
                  GPUVMK_CACHE names (.cache in the source tree by default).\n\n\
                  Examples:\n  gpuvmk demo\n  gpuvmk demo --vms 3 --kernel 7.2 --json\n  gpuvmk demo --chip gh100"
)]
pub(super) struct Args {
    /// How many guests share the GPU.
    #[arg(long, value_name = "N", default_value_t = 2)]
    vms: u32,
    /// The chip that guests see: gf100 or gh100.
    #[arg(long, value_name = "CHIP", default_value = "gf100")]
    chip: Chip,
    /// The guests' kernel: 6.1, 6.12 or 7.2 (GH100: 7.2). [default: 6.12; GH100: 7.2]
    #[arg(long, value_name = "SERIES")]
    kernel: Option<KernelSeries>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Keep the configuration files and logs also when all went well.
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let gpuvmk = std::env::current_exe().context("Cannot tell where this program is")?;
    let kernel = args.kernel.unwrap_or(args.chip.usual_kernel());
    let options = Options { gpuvmk, vms: args.vms, chip: args.chip, kernel, keep: args.keep };
    let result = demo::run(&options)?;
    if args.json {
        say!("{result}")?;
    }
    let ok = result.get("ok").and_then(serde_json::Value::as_bool) == Some(true);
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
