//! `gpuvmk aggregator GPU.toml`: the one process that owns the physical GPU.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::card::open_card;
use super::init;
use super::serve::JailOptions;
use super::vbios;
use crate::aggregator::machine::guests::{Guest, GuestList};
use crate::aggregator::{Config, Service, Sockets};
use crate::chip::{Chip, Face};
use crate::config::{Backend, ConfigError, GpuConfig, Mistake};
use crate::gpu::register::RegisterDriver;
use crate::gpu::rm::{HostPaths, RmConfig, TakenGpu, Timeslice};
use crate::gpu::{GpuDriver, OwnershipLedger};
use crate::host::service_manager::Manager;
use crate::host::socket_path::SocketSpec;
use crate::host::socket_path::names;
use crate::host::urgency;
use crate::jail::{self, Allowance, Drives, PathRight, Right, Role};
use crate::pci::PciAddress;
use crate::softgpu::executor::{Executor, ExecutorConfig};
use crate::softgpu::{Preemption, SoftGpu, SoftGpuConfig, Workers};

/// Arguments of `gpuvmk aggregator`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk aggregator /etc/gpuvmk/gpu0.toml")]
pub(super) struct Args {
    /// The GPU's configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    jail: JailOptions,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Before the jail, in whose user namespace nobody may raise limits.
    urgency::allow();
    // Nothing has been opened yet.
    jail::prepare(None)?;
    // Those of engines of a software GPU, and of porters, too: others wait for them all the time.
    urgency::request_short_slices();
    let manager = Manager::of_this_process().context("Cannot reach the service manager")?;
    let config = GpuConfig::load(&args.file)?;
    // Caught before anything exists that would have to be cleaned up.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("Cannot catch signals")?;
    let settings = Config {
        socket: Some(config.socket.clone()),
        control: config.control.clone(),
        policy: config.policy,
        settings: config.settings,
        backend: config.backend.name().to_owned(),
        poll: config.poll,
        scrub: config.scrub,
        hang: config.hang,
        guests: guests(&config, &args.file)?,
        doors: doors(&config),
        recorder: config.recorder.clone().map(|spec| (spec, config.name.clone())),
    };
    let failed = || format!("GPU `{}` cannot be served", config.name);
    // Before the GPU: the driver of a real one may become an ordinary user, who may not make sockets
    // anywhere.
    let sockets = Sockets::bind(&settings).with_context(failed)?;
    let mode = args.jail.mode(config.jail);
    let confine = || jail::confine(mode, &allowance(&config));
    let (driver, ledger) = match config.backend {
        // The software GPU starts threads.
        Backend::Soft { chip, vram, preemption, workers } => {
            confine()?;
            software(chip, vram, preemption, workers)?
        }
        // Who takes a real GPU becomes another user and looks around in the system first. Then it starts
        // threads.
        Backend::Rm { device, chip, vram, uid, timeslice } => {
            let taken = nvidia(device, vram, chip, uid, timeslice)?;
            confine()?;
            let driver = taken.start().context("Cannot take the GPU")?;
            (Box::new(driver) as Box<dyn GpuDriver>, None)
        }
        // A card's files are opened first; its driver starts a thread.
        Backend::Vfio { device, chip: _, ref init, ref vbios } => {
            let script = init.as_deref().map(init::read).transpose().with_context(failed)?;
            let card = open_card(device).with_context(failed)?;
            if let Some(script) = &script {
                vbios::check(script, card.as_ref(), vbios.as_deref()).with_context(failed)?;
            }
            confine()?;
            let driver = RegisterDriver::on_card(card, script).context("Cannot bring the GPU up")?;
            (Box::new(driver) as Box<dyn GpuDriver>, None)
        }
    };
    let service = Service::start_on(sockets, driver, ledger, &settings).with_context(failed)?;
    log::info!("GPU `{}` serves at {}", config.name, config.socket.path.display());
    // The service ends by itself when its card is taken away.
    let remote = service.remote();
    let ended = signals.handle();
    let told = manager.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        jail::enter(Role::Signals);
        for signal in signals.forever() {
            if signal == SIGHUP {
                // Its files are out of its reach.
                log::warn!(
                    "SIGHUP: nothing is read again here; `gpuvmk apply` takes over what the files say now"
                );
                continue;
            }
            log::info!("Signal {signal}: ending");
            told.stopping();
            remote.stop();
            return;
        }
    })?;
    jail::enter(Role::Supervisor);
    manager.ready(&format!("serves at {}", config.socket.path.display()));
    if let Some(watchdog_interval) = manager.watchdog_interval() {
        // It lives as long as its one thread answers.
        while !service.ends_within(watchdog_interval) {
            if service.status().is_some() {
                manager.alive();
            }
        }
    }
    let orderly = service.join();
    ended.close();
    Ok(if orderly { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The VMs that may come, with the numbers of their users.
pub(super) fn guests(config: &GpuConfig, file: &Path) -> Result<Option<GuestList>, ConfigError> {
    let Some(entries) = &config.vms else { return Ok(None) };
    let (mut guests, mut mistakes) = (GuestList::new(), Vec::new());
    for (number, entry) in (1..).zip(entries) {
        let uid = entry.user.as_deref().map(|user| (user, names::user_id(user)));
        if let Some((user, None)) = uid {
            mistakes.push(Mistake {
                line: entry.line,
                key: format!("vm[{number}].user"),
                problem: format!("\"{user}\" is no user of this machine"),
                allowed: "the name or number of a user of this machine".to_owned(),
            });
        }
        guests.insert(entry.name.clone(), Guest::new(entry, uid.and_then(|(_, uid)| uid)));
    }
    if mistakes.is_empty() {
        Ok(Some(guests))
    } else {
        Err(ConfigError::Mistakes { path: file.to_owned(), mistakes })
    }
}

/// The sockets of VMs that have their own.
fn doors(config: &GpuConfig) -> Vec<(String, SocketSpec)> {
    let entries = config.vms.iter().flatten();
    entries.filter_map(|entry| Some((entry.name.clone(), entry.socket.clone()?))).collect()
}

/// A physical GPU: what drives it, and what knows the true owners of its memory.
type Physical = (Box<dyn GpuDriver>, Option<Arc<dyn OwnershipLedger>>);

/// Makes a software GPU and brings it up.
fn software(chip: Chip, vram: u64, preemption: Preemption, workers: Workers) -> anyhow::Result<Physical> {
    match chip.face {
        Face::Registers => {
            let gpu = SoftGpu::new(SoftGpuConfig { vram, preemption, ..SoftGpuConfig::default() })
                .context("Cannot make the software GPU")?;
            let ledger: Arc<dyn OwnershipLedger> = gpu.ledger();
            let driver = RegisterDriver::new(gpu).context("Cannot bring the GPU up")?;
            Ok((Box::new(driver), Some(ledger)))
        }
        Face::Gsp => {
            let gpu = Executor::new(ExecutorConfig { vram, workers })
                .context("Cannot make the software GPU")?
                .with_preemption(preemption);
            let ledger: Arc<dyn OwnershipLedger> = gpu.ledger();
            Ok((Box::new(gpu), Some(ledger)))
        }
    }
}

/// Takes a GPU that NVIDIA's driver has.
fn nvidia(
    device: Option<PciAddress>,
    vram: u64,
    chip: Option<Chip>,
    uid: u32,
    timeslice: Timeslice,
) -> anyhow::Result<TakenGpu> {
    let gpu = device.map(|address| address.to_string());
    let uid = rustix::process::geteuid().is_root().then_some(uid);
    let config = RmConfig { gpu, vram, chip, uid, timeslice, paths: HostPaths::of_host() };
    TakenGpu::open(&config).context("Cannot take the GPU")
}

/// Rights that an aggregator still needs once it is set up.
fn allowance(config: &GpuConfig) -> Allowance {
    let own = config.vms.iter().flatten().filter_map(|entry| entry.socket.as_ref());
    let sockets = std::iter::once(&config.socket).chain(&config.control).chain(&config.recorder).chain(own);
    let mut paths: Vec<PathRight> =
        sockets.map(|socket| PathRight { path: jail::folder(&socket.path), right: Right::Remove }).collect();
    let drives = match config.backend {
        Backend::Rm { .. } => Drives::RealGpu,
        Backend::Vfio { .. } => Drives::Card,
        Backend::Soft { .. } => Drives::Nothing,
    };
    if drives == Drives::RealGpu {
        paths.extend(nvidia_nodes().map(|path| PathRight { path, right: Right::Device }));
    }
    Allowance { paths, descriptors: None, memory: None, drives, beside: 0 }
}

/// The nodes of the NVIDIA driver that the aggregator opens: the control node and one for each GPU.
fn nvidia_nodes() -> impl Iterator<Item = PathBuf> {
    let of_gpu = |name: &str| {
        name.strip_prefix("nvidia").is_some_and(|number| number.parse::<u32>().is_ok()) || name == "nvidiactl"
    };
    std::fs::read_dir("/dev")
        .into_iter()
        .flatten()
        .flatten()
        .filter(move |entry| entry.file_name().to_str().is_some_and(of_gpu))
        .map(|entry| entry.path())
}
