//! `gpuvmk softgpu --socket-path=PATH`: the software GPU alone, as a PCI function for one QEMU.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;

use super::serve::{self, BackendOptions, ResetBetweenClients};
use crate::config::parse_size;
use crate::softgpu::{SoftGpu, SoftGpuConfig};

/// Arguments of `gpuvmk softgpu`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk softgpu --socket-path=/tmp/gpu.sock --vram 256M\n  \
    qemu-system-x86_64 ... -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/gpu.sock\"}}'")]
pub(super) struct Args {
    #[command(flatten)]
    backend: BackendOptions,
    /// VRAM of the software GPU, a multiple of 1M.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    vram: u64,
    /// Record every access to this file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("`{text}` is not a size such as 256M or 1G"))
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.backend.print_capabilities {
        serve::print_capabilities("gpuvmk-softgpu", &["vfio-user"]);
        return Ok(ExitCode::SUCCESS);
    }
    let stop = serve::stop_on_signals()?;
    let server = args.backend.server(None)?;
    let gpu = SoftGpu::new(SoftGpuConfig { vram: args.vram, ..SoftGpuConfig::default() })
        .context("Cannot make the software GPU")?;
    let trace = args.trace.as_deref().map(serve::create_trace).transpose()?;
    let function = serve::traced(gpu, trace, args.trace.as_deref())?;
    log::info!("Software GPU with {} of VRAM serves", crate::config::show_size(args.vram));
    server.run(&function, &ResetBetweenClients(Arc::clone(&function)), &stop.handle)?;
    Ok(ExitCode::SUCCESS)
}
