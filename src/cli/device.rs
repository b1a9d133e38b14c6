//! `gpuvmk device VM.toml`: the device backend, one process per VM.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::serve::{self, BackendOptions, ResetBetweenClients};
use crate::aggregator::connect;
use crate::aggregator::link::{AggregatorLink, Grant, LinkError};
use crate::aggregator::protocol::{Hello, PROTOCOL_VERSION};
use crate::config::VmConfig;
use crate::frontend::vfio_user::StopHandle;
use crate::units::gf100::{Gf100Config, Gf100Function};
use crate::vgpu::{Mediator, MediatorConfig};

/// How often an absent aggregator is tried again.
const RETRY: Duration = Duration::from_millis(100);

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
    let stop = serve::stop_on_signals()?;
    // The socket first: a path that is taken shows before the aggregator gives anything away.
    let server = args.backend.server(config.socket.as_ref())?;
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: config.name.clone(),
        chip: config.chip.clone(),
        vram: config.vram,
        channels: config.channels,
        weight: config.weight,
    };
    let Some((link, grant)) = wait_for_aggregator(&config, &hello, args.wait, &stop)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let path = config.gpu.clone();
    let mediator = MediatorConfig {
        scrub_on_reset: true,
        reconnect: Some(Box::new(move || connect(&path, &hello))),
        ..MediatorConfig::default()
    };
    let mediator = Mediator::new(link, grant, mediator).context("Cannot make the vGPU")?;
    let vgpu = Gf100Function::new(Arc::new(mediator), Gf100Config::default())
        .context("Cannot make the vGPU's PCI function")?;
    let function = serve::traced(Arc::new(vgpu), config.trace.as_ref())?;
    log::info!("vGPU of VM `{}` serves", config.name);
    server.run(&function, &ResetBetweenClients(Arc::clone(&function)), &stop)?;
    Ok(ExitCode::SUCCESS)
}

/// Connects, however long the aggregator takes to come up. `None`: told to stop meanwhile.
fn wait_for_aggregator(
    config: &VmConfig,
    hello: &Hello,
    seconds: u64,
    stop: &StopHandle,
) -> anyhow::Result<Option<(Arc<dyn AggregatorLink>, Grant)>> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut told = false;
    while !stop.is_stopped() {
        match connect(&config.gpu, hello) {
            Ok(admitted) => return Ok(Some(admitted)),
            Err(LinkError::Lost(why)) if Instant::now() < deadline => {
                if !told {
                    log::info!("Waiting for the aggregator at {}: {why}", config.gpu.display());
                    told = true;
                }
            }
            Err(LinkError::Lost(why)) => bail!(
                "No aggregator at {} within {seconds} s ({why}); start it with `gpuvmk aggregator GPU.toml`, or \
                 correct `gpu` in the configuration",
                config.gpu.display()
            ),
            Err(refused) => return Err(refused).context("This VM was not admitted"),
        }
        std::thread::sleep(RETRY);
    }
    Ok(None)
}
