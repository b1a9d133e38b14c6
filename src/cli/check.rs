//! `gpuvmk check FILE...`

use std::path::PathBuf;
use std::process::ExitCode;

use super::output::complain;
use crate::config::AnyConfig;

/// Arguments of `gpuvmk check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk check /etc/gpuvmk/gpu0.toml /etc/gpuvmk/vm1.toml")]
pub(super) struct Args {
    /// Configuration files of GPUs and VMs.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut all_good = true;
    for file in &args.files {
        match AnyConfig::load(file) {
            Ok(AnyConfig::Vm(vm)) => say!("{}: VM `{}`: ok", file.display(), vm.name())?,
            Ok(AnyConfig::Gpu(gpu)) => say!("{}: GPU `{}`: ok", file.display(), gpu.name)?,
            Err(error) => {
                all_good = false;
                complain(format_args!("{:#}", anyhow::Error::from(error)));
            }
        }
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
