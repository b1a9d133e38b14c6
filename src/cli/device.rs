//! `gpuvmk device VM.toml`: the device backend, one process per VM.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::net::SocketType;

use super::serve::{self, BackendOptions, JailOptions, OpenTrace, ResetBetweenClients};
use super::viewers::Viewers;
use super::vm_gpu::Source;
use crate::config::VmFile;
use crate::host::service_manager::Manager;
use crate::host::socket_path::Listener;
use crate::host::urgency;
use crate::jail::{self, Allowance, Drives, PathRight, Right, Role};
use crate::trace::Tracer;
use crate::trace::recording_server::RecordingServer;

/// Arguments of `gpuvmk device`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk device /etc/gpuvmk/vm1.toml --socket-path=/run/gpuvmk/vm1.sock")]
pub(super) struct Args {
    /// The VM's configuration file.
    #[arg(value_name = "FILE", required_unless_present = "print_capabilities")]
    file: Option<PathBuf>,
    #[command(flatten)]
    backend: BackendOptions,
    #[command(flatten)]
    jail: JailOptions,
    /// Wait this many seconds for the aggregator, then give up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.backend.print_capabilities {
        serve::print_capabilities("gpuvmk-device", &["vfio-user"])?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(file) = &args.file else { bail!("Give the VM's configuration file") };
    // First of all: nothing has been opened yet.
    let descriptor = args.backend.descriptor()?;
    jail::prepare(descriptor)?;
    let manager = Manager::of_this_process().context("Cannot reach the service manager")?;
    let config = VmFile::load(file)?;
    // The socket first: a path that is taken shows before the aggregator gives anything away.
    let server = args.backend.server(descriptor, config.socket())?.with_poll(config.poll());
    let recording = config.recorder().map(|spec| Listener::bind(spec, SocketType::STREAM)).transpose()?;
    let viewers = config.viewers().map(|spec| Listener::bind(spec, SocketType::STREAM)).transpose()?;
    let trace = OpenTrace::of_vm(config.trace())?;
    let source = Source::open(config)?;
    let config = source.file();
    // Files are out of reach from here on, and the first thread starts.
    jail::confine(args.jail.mode(config.jail()), &allowance(config, args, descriptor.is_some()))?;
    // Of all threads to come: each works for some microseconds at a time.
    urgency::request_short_slices();
    let stop = serve::stop_on_signals()?;
    let tracer = Tracer::default();
    let wait = Duration::from_secs(args.wait);
    let Some(gpu) = source.gpu(file, wait, stop.cancel(), &tracer)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let told = stop.clone();
    gpu.when_lost(move || {
        log::error!("The card is being taken away, or is broken: ending");
        told.stop();
    });
    let function = gpu.traced(config.name(), &tracer, trace)?;
    let recording = recording.map(|listener| {
        let header = gpu.header(config.name())?;
        RecordingServer::start(listener, tracer, header).context("Cannot serve operators who want to record")
    });
    let recording = recording.transpose()?;
    log::info!("{} of VM `{}` serves", gpu.kind(), config.name());
    let viewers = viewers.map(|listener| Viewers::start(listener, &gpu, config.name())).transpose()?;
    jail::enter(Role::Session);
    manager.ready(&format!("serves {}", config.name()));
    server.run(&function, &ResetBetweenClients(Arc::clone(&function)), &stop)?;
    manager.stopping();
    drop((recording, viewers));
    gpu.log_end();
    Ok(ExitCode::SUCCESS)
}

/// Limit of a back end's descriptors: memory ranges of its VM (at worst a file each), two grants of the
/// aggregator (the old one and a new one), interrupts, sockets, people who look.
const DESCRIPTORS: u64 = 512 + 2 * 256 + 64 + 32 + 16;

/// Private memory beside what grows with the vGPU's memory: page tables' copies and the lists of their pages.
const MEMORY: u64 = 512 << 20;

/// Rights that a device back end still needs once it is set up.
fn allowance(config: &VmFile, args: &Args, given: bool) -> Allowance {
    let (mut paths, memory, drives) = match config {
        VmFile::Part(config) => {
            let paths = vec![PathRight { path: jail::folder(&config.gpu), right: Right::Connect }];
            (paths, MEMORY.saturating_add(config.vram / 4), Drives::Nothing)
        }
        VmFile::Whole(_) => (Vec::new(), MEMORY, Drives::Card),
    };
    let own = args.backend.socket_path.as_ref().or(config.socket().map(|socket| &socket.path));
    if let Some(own) = own.filter(|_| !given) {
        paths.push(PathRight { path: jail::folder(own), right: Right::Remove });
    }
    let recording = config.recorder();
    paths.extend(
        config.viewers().map(|spec| PathRight { path: jail::folder(&spec.path), right: Right::Remove }),
    );
    paths.extend(recording.map(|spec| PathRight { path: jail::folder(&spec.path), right: Right::Remove }));
    Allowance { paths, descriptors: Some(DESCRIPTORS), memory: Some(memory), drives, beside: 0 }
}
