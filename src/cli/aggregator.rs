//! `gpuvmk aggregator GPU.toml`: the one process that owns the physical GPU.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::places::places;
use crate::aggregator::{Config, Service, Sockets};
use crate::chip::Chip;
use crate::config::{Backend, GpuConfig};
use crate::gpu::register::RegisterDriver;
use crate::gpu::rm::{RmConfig, RmDriver};
use crate::gpu::{GpuDriver, OwnershipLedger};
use crate::softgpu::executor::{Executor, ExecutorConfig};
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
    let settings = Config {
        socket: Some(config.socket.clone()),
        control: config.control.clone(),
        policy: config.policy,
        backend: config.backend.name().to_owned(),
        poll: config.poll,
    };
    let failed = || format!("GPU `{}` cannot be served", config.name);
    // Before the GPU: the driver of a real one may become an ordinary user, who may not make sockets anywhere.
    let sockets = Sockets::bind(&settings).with_context(failed)?;
    let (driver, ledger) = bring_up(&config)?;
    let service = Service::start_on(sockets, driver, ledger, &settings).with_context(failed)?;
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

/// A physical GPU: what drives it, and what knows the true owners of its memory.
type Physical = (Box<dyn GpuDriver>, Option<Arc<dyn OwnershipLedger>>);

/// Brings up the physical GPU that the file names.
fn bring_up(config: &GpuConfig) -> anyhow::Result<Physical> {
    match (&config.backend, config.chip) {
        (Backend::Soft { vram }, Chip::Gf100) => {
            let gpu = SoftGpu::new(SoftGpuConfig { vram: *vram, ..SoftGpuConfig::default() })
                .context("Cannot make the software GPU")?;
            let ledger: Arc<dyn OwnershipLedger> = gpu.ledger();
            let driver = RegisterDriver::new(gpu).context("Cannot bring the GPU up")?;
            Ok((Box::new(driver), Some(ledger)))
        }
        (Backend::Soft { vram }, Chip::Gh100) => {
            let gpu =
                Executor::new(ExecutorConfig { vram: *vram }).context("Cannot make the software GPU")?;
            let ledger: Arc<dyn OwnershipLedger> = gpu.ledger();
            Ok((Box::new(gpu), Some(ledger)))
        }
        (Backend::Rm { device, vram, uid }, _) => {
            let gpu = device.map(|address| address.to_string());
            let uid = rustix::process::geteuid().is_root().then_some(*uid);
            let config = RmConfig { gpu, vram: *vram, uid, places: places() };
            let driver = RmDriver::open(&config).context("Cannot take the GPU")?;
            Ok((Box::new(driver), None))
        }
    }
}
