//! `gpuvmk check FILE...`

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::exposure;
use super::output::complain;
use crate::config::AnyConfig;
use crate::host::socket_path::names;

/// Arguments of `gpuvmk check`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Files that belong together are best checked together: sockets that a QEMU can reach and should not are warned of, which\n\
                  does not change the exit code.\n\n\
                  Example:\n  gpuvmk check /etc/gpuvmk/gpu0.toml /etc/gpuvmk/vm1.toml"
)]
pub(super) struct Args {
    /// Configuration files of GPUs and VMs.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print one JSON object instead: whether all is right, mistakes and warnings.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut sound, mut mistakes) = (Vec::new(), Vec::new());
    for file in &args.files {
        match AnyConfig::load(file) {
            Ok(config) => sound.push((file.clone(), config)),
            Err(error) => mistakes.push(format!("{:#}", anyhow::Error::from(error))),
        }
    }
    let warnings = exposure::warnings(&sound, names::members);
    if args.json {
        let files: Vec<_> = sound.iter().map(|(file, _)| file).collect();
        let found =
            json!({ "ok": mistakes.is_empty(), "files": files, "mistakes": mistakes, "warnings": warnings });
        say!("{found}")?;
    } else {
        for (file, config) in &sound {
            match config {
                AnyConfig::Vm(vm) => say!("{}: VM `{}`: ok", file.display(), vm.name())?,
                AnyConfig::Gpu(gpu) => say!("{}: GPU `{}`: ok", file.display(), gpu.name)?,
            }
        }
        mistakes.iter().for_each(|mistake| complain(format_args!("{mistake}")));
        warnings.iter().for_each(|warning| complain(format_args!("{warning}")));
    }
    Ok(if mistakes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
