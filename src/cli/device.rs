//! `gpuvmk device VM.toml`: the device backend, one process per VM.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};

use super::serve::{self, BackendOptions, ResetBetweenClients};
use crate::aggregator::link::LinkError;
use crate::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use crate::aggregator::{Patience, connect};
use crate::config::{VmConfig, VmLimits};
use crate::log_limit;
use crate::vgpu::{MediatorConfig, Quotas, Vgpu, VgpuConfig};

/// How long a function reset may look for a new aggregator: QEMU waits 5 s for the reset's answer.
const RECONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Arguments of `gpuvmk device`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk device /etc/gpuvmk/vm1.toml --socket-path=/run/gpuvmk/vm1.sock")]
pub(super) struct Args {
    /// The VM's configuration file.
    #[arg(value_name = "FILE", required_unless_present = "print_capabilities")]
    file: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendOptions,
    /// Wait this many seconds for the aggregator, then give up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.backend.print_capabilities {
        serve::print_capabilities("gpuvmk-device", &["vfio-user"]);
        return Ok(ExitCode::SUCCESS);
    }
    let Some(file) = &args.file else { bail!("Give the VM's configuration file") };
    let config = VmConfig::load(file)?;
    log_limit::set_lines_per_second(config.limits.log_lines);
    let stop = serve::stop_on_signals()?;
    // The socket first: a path that is taken shows before the aggregator gives anything away.
    let server = args.backend.server(config.socket.as_ref())?;
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: config.name.clone(),
        chip: config.chip.name().to_owned(),
        vram: config.vram,
        channels: config.channels,
        weight: config.weight,
        limits: tenant_limits(&config.limits),
    };
    let patience = Patience {
        limit: Some(Duration::from_secs(args.wait)),
        ..Patience::until(Arc::clone(&stop.requested))
    };
    let (link, grant) = match connect(&config.gpu, hello.clone(), &patience) {
        Ok(admitted) => admitted,
        Err(_) if stop.handle.is_stopped() => return Ok(ExitCode::SUCCESS),
        Err(LinkError::Lost(why)) => bail!(
            "No aggregator within {} s ({why}); start it with `gpuvmk aggregator GPU.toml`, or correct `gpu` in {}",
            args.wait,
            file.display()
        ),
        Err(refused) => {
            return Err(refused).with_context(|| format!("VM `{}` was not admitted", config.name));
        }
    };
    let path = config.gpu.clone();
    let again = Patience { limit: Some(RECONNECT_WITHIN), ..Patience::until(Arc::clone(&stop.requested)) };
    let mediator = MediatorConfig {
        scrub_on_reset: true,
        quotas: quotas(&config),
        reconnect: Some(Box::new(move || connect(&path, hello.clone(), &again))),
        ..MediatorConfig::default()
    };
    let vgpu = Vgpu::new(link, grant, VgpuConfig { mediator, ..VgpuConfig::of(config.chip) })
        .context("Cannot make the vGPU")?;
    let vgpu = Arc::new(vgpu);
    let function = serve::traced(Arc::clone(&vgpu), config.trace.as_ref())?;
    log::info!("vGPU of VM `{}` serves", config.name);
    server.run(&function, &ResetBetweenClients(Arc::clone(&function)), &stop.handle)?;
    let status = vgpu.status();
    log::info!("vGPU ends: {}", status.counts);
    log::info!("Walks of page tables: {}", status.walks);
    Ok(ExitCode::SUCCESS)
}

/// The limits that the aggregator keeps.
fn tenant_limits(limits: &VmLimits) -> TenantLimits {
    TenantLimits {
        page_tables: limits.page_tables.unwrap_or(u64::MAX),
        mappings: limits.mappings,
        doorbells: limits.doorbells,
        thread_time: limits.thread_time,
    }
}

/// The limits that are kept here.
fn quotas(config: &VmConfig) -> Quotas {
    let VmLimits { bad_pages, flushes, requests, interrupts, guest_tables, .. } = config.limits;
    Quotas { bad_pages, flushes, requests, interrupts, guest_tables }
}
