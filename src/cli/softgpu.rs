//! `gpuvmk softgpu --socket-path=PATH`: the software GPU alone, as a PCI function for one QEMU.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;

use super::serve::{self, BackendOptions, JailOptions, OpenTrace, ResetBetweenClients};
use crate::host::size::parse_size;
use crate::host::urgency;
use crate::jail::{self, Allowance, Drives, Mode, PathRight, Right, Role};
use crate::softgpu::{SoftGpu, SoftGpuConfig};
use crate::trace::{Filter, Tracer};

/// Arguments of `gpuvmk softgpu`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk softgpu --socket-path=/tmp/gpu.sock --vram 256M\n  \
    qemu-system-x86_64 ... -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/gpu.sock\"}}'")]
pub(super) struct Args {
    #[command(flatten)]
    backend: BackendOptions,
    #[command(flatten)]
    jail: JailOptions,
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
        serve::print_capabilities("gpuvmk-softgpu", &["vfio-user"])?;
        return Ok(ExitCode::SUCCESS);
    }
    // First of all: nothing has been opened yet.
    let descriptor = args.backend.descriptor()?;
    jail::prepare(descriptor)?;
    let server = args.backend.server(descriptor, None)?;
    let trace = args.trace.as_deref().map(|path| OpenTrace::create(path, Filter::default())).transpose()?;
    // Files are out of reach from here on, and the first thread starts.
    jail::confine(args.jail.mode(Mode::Enforce), &allowance(args))?;
    let stop = serve::stop_on_signals()?;
    let gpu = SoftGpu::new(SoftGpuConfig { vram: args.vram, ..SoftGpuConfig::default() })
        .context("Cannot make the software GPU")?;
    let function = serve::traced(gpu, ("softgpu", Some(args.vram)), &Tracer::default(), trace)?;
    log::info!("Software GPU with {} of VRAM serves", crate::host::size::show_size(args.vram));
    // Of this thread alone: those of the engines compute.
    urgency::request_short_slices();
    jail::enter(Role::SoftGpu);
    server.run(&function, &ResetBetweenClients(Arc::clone(&function)), &stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Descriptors that it may have at a time: memory ranges of its VM, which have a file each at worst, its
/// VRAM's banks, interrupts, sockets.
const DESCRIPTORS: u64 = 512 + 256 + 64 + 32;

/// Private memory; VRAM is files.
const MEMORY: u64 = 512 << 20;

/// Rights that it still needs once it is set up.
fn allowance(args: &Args) -> Allowance {
    let own = args.backend.socket_path.iter();
    let paths = own.map(|own| PathRight { path: jail::folder(own), right: Right::Remove }).collect();
    Allowance {
        paths,
        descriptors: Some(DESCRIPTORS),
        memory: Some(MEMORY),
        drives: Drives::Nothing,
        beside: 0,
    }
}
