//! `gpuvmk aggregator GPU.toml`: the one process that owns the physical GPU.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::aggregator::{Config, Service};
use crate::config::{Backend, GpuConfig};
use crate::gpu::OwnershipLedger;
use crate::gpu::register::RegisterDriver;
use crate::softgpu::{SoftGpu, SoftGpuConfig};

/// Arguments of `gpuvmk aggregator`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk aggregator /etc/gpuvmk/gpu0.toml")]
pub(super) struct Args {
    /// The GPU's configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = GpuConfig::load(&args.file)?;
    // Caught before anything exists that would have to be cleaned up.
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("Cannot catch signals")?;
    let Backend::Soft = config.backend;
    let gpu = SoftGpu::new(SoftGpuConfig { vram: config.vram, ..SoftGpuConfig::default() })
        .context("Cannot make the software GPU")?;
    let ledger: Arc<dyn OwnershipLedger> = gpu.ledger();
    let driver = RegisterDriver::new(gpu).context("Cannot bring the GPU up")?;
    let settings = Config {
        socket: Some(config.socket.clone()),
        control: config.control.clone(),
        policy: config.policy,
        backend: "soft".to_owned(),
        poll: config.poll,
    };
    let service = Service::start(Box::new(driver), Some(ledger), &settings)
        .with_context(|| format!("GPU `{}` cannot be served", config.name))?;
    log::info!("GPU `{}` serves at {}", config.name, config.socket.path.display());
    // The service may end by itself, when its GPU is lost; nobody would be left to serve then.
    let remote = service.remote();
    let ended = signals.handle();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            log::info!("Signal {signal}: ending");
            remote.stop();
        }
    })?;
    let orderly = service.join();
    ended.close();
    Ok(if orderly { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
