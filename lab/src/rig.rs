//! A whole set-up: the GPU's processes in front of which guests are started.
//!
//! *Native*: each GPU of each VM is a software GPU of its own, served by `gpuvmk softgpu`. *Mediated*: one
//! aggregator owns one software GPU for all chips that are driven by registers, and one for all that are by
//! firmware; each vGPU is a `gpuvmk device` process. Guests cannot tell which; that is what tests and
//! benchmarks compare. A set-up may have GPUs of both kinds. (A chip with a GSP has no native form: its
//! engines can be modelled, but not the firmware interface that its driver speaks to, which the device
//! process plays.)

mod config;
mod socket_folder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use gpuvmk_control_client::{Status, TenantStatus};
use serde_json::Value;

use self::config::{gpu_config, quoted, vm_config};
use self::socket_folder::SocketFolder;
use crate::chip::{Chip, GuestChip as _};
use crate::daemons::Daemon;

/// How long device processes are left without their aggregator when they start first.
const ALONE: Duration = Duration::from_secs(1);

/// Whose GPU a guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// A software GPU of its own.
    Native,
    /// A vGPU on a software GPU that all share.
    Mediated,
}

impl Topology {
    /// Its name, as results have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Mediated => "mediated",
        }
    }
}

/// The policy that lets everything run that is ready.
pub const SHARED_AS_IT_COMES: &str = "fifo";
/// The policy that documentation and the packaged example recommend for several VMs.
pub const RECOMMENDED: &str = "weighted";

/// The policy that gives VMs turns.
pub const SHARED_IN_TURNS: &str = "best-effort";

/// Channels of a vGPU where nothing else is said.
pub const CHANNELS: u16 = 32;

/// What executes the work of a mediated set-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// The software GPU.
    #[default]
    Soft,
    /// This machine's NVIDIA GPU, through its loaded driver.
    Rm,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Soft, Self::Rm];

    /// Its name, as configuration files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Rm => "rm",
        }
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|backend| backend.name() == text) {
            Some(backend) => Ok(backend),
            None => bail!("No backend '{text}': there are {}", Self::ALL.map(Self::name).join(", ")),
        }
    }
}

/// One GPU as a guest is to see it.
#[derive(Debug, Clone)]
pub struct GpuSpec {
    /// The vGPU's name.
    pub name: String,
    /// What it presents.
    pub chip: Chip,
    /// Native or mediated.
    pub topology: Topology,
    /// Its memory.
    pub vram_mib: u32,
    /// Whether its register accesses are recorded.
    pub trace: bool,
    /// How a mediated GPU's instance memory is reached, as configuration files have it; empty: as usual.
    pub bar3: &'static str,
    /// The mode that its monitor prefers, as configuration files have it; empty: it has no head.
    pub display: &'static str,
}

/// What a set-up consists of.
#[derive(Debug, Clone)]
pub struct RigSpec {
    /// The gpuvmk program.
    pub gpuvmk: PathBuf,
    /// The folder for configuration files and logs.
    pub folder: PathBuf,
    /// What mediated GPUs' work is executed by.
    pub backend: Backend,
    /// Whether the device processes start before the aggregator that they need.
    pub devices_first: bool,
    /// The GPUs.
    pub gpus: Vec<GpuSpec>,
    /// What a shared GPU has beside the partitions of its vGPUs.
    pub spare_vram_mib: u32,
    /// How a shared GPU's time is divided, as configuration files have it.
    pub policy: &'static str,
    /// Channels of each vGPU.
    pub channels: u16,
    /// Whether the software GPU takes work off an engine between methods only, with short limits for hangs.
    pub stubborn: bool,
    /// Variables in the daemons' environment.
    pub environment: &'static [(&'static str, &'static str)],
}

impl RigSpec {
    /// The mediated GPUs.
    fn mediated(&self) -> impl Iterator<Item = &GpuSpec> {
        self.gpus.iter().filter(|gpu| gpu.topology == Topology::Mediated)
    }
}

/// A running set-up.
#[derive(Debug)]
pub struct Rig {
    // Field order is drop order: devices go before the aggregator, and the sockets' folder last.
    devices: Vec<Daemon>,
    aggregators: BTreeMap<Chip, Daemon>,
    spec: RigSpec,
    sockets: SocketFolder,
}

impl Rig {
    /// Starts the set-up; every socket listens when this returns.
    pub fn start(spec: RigSpec) -> Result<Self> {
        fs::create_dir_all(&spec.folder)
            .with_context(|| format!("Cannot create {}", spec.folder.display()))?;
        let mut rig = Self {
            devices: Vec::new(),
            aggregators: BTreeMap::new(),
            spec,
            sockets: SocketFolder::create()?,
        };
        for gpu in &rig.spec.gpus {
            let can_be = gpu.topology == Topology::Mediated || gpu.chip.has_native_form();
            ensure!(can_be, "There is no native software {} for {}", gpu.chip, gpu.name);
        }
        if !rig.spec.devices_first {
            rig.start_aggregators()?;
        }
        for index in 0..rig.spec.gpus.len() {
            let device = rig.spawn_device(index)?;
            rig.devices.push(device);
        }
        if rig.spec.devices_first {
            thread::sleep(ALONE);
            rig.start_aggregators()?;
        }
        for index in 0..rig.spec.gpus.len() {
            rig.wait_device(index)?;
        }
        Ok(rig)
    }

    /// Where QEMU finds GPU `index`.
    pub fn socket(&self, index: usize) -> PathBuf {
        self.sockets.path().join(format!("{}.sock", self.name(index)))
    }

    /// Where GPU `index`, a mediated one, is recorded while it runs.
    pub fn recorder(&self, index: usize) -> PathBuf {
        self.sockets.path().join(format!("{}.record", self.name(index)))
    }

    /// The chip that the GPU is that serves a vGPU's `chip`: the first of the set-up that is driven alike.
    fn host(&self, chip: Chip) -> Chip {
        let alike = self.spec.mediated().map(|gpu| gpu.chip).filter(|other| other.face == chip.face);
        alike.min().unwrap_or(chip)
    }

    /// The configuration file of GPU `index`, a mediated one.
    pub fn config(&self, index: usize) -> PathBuf {
        self.spec.folder.join(format!("{}.toml", self.name(index)))
    }

    /// The control socket of the aggregator of GPU `index`, a mediated one.
    pub fn control(&self, index: usize) -> PathBuf {
        let chip = self.spec.gpus.get(index).map_or(Chip::GF100, |gpu| gpu.chip);
        self.control_socket(chip)
    }

    /// Where the schedule of the aggregator for `chip` is recorded.
    pub fn schedule_recorder(&self, chip: Chip) -> PathBuf {
        let chip = self.host(chip);
        self.sockets.path().join(format!("gpu-{chip}.record"))
    }

    /// The control socket of the aggregator for `chip`.
    fn control_socket(&self, chip: Chip) -> PathBuf {
        let chip = self.host(chip);
        self.sockets.path().join(format!("control-{chip}.sock"))
    }

    /// Where device processes find the aggregator for `chip`.
    pub fn shared_socket(&self, chip: Chip) -> PathBuf {
        let chip = self.host(chip);
        self.sockets.path().join(format!("gpu-{chip}.sock"))
    }

    /// The folder that all sockets lie in.
    pub fn socket_folder(&self) -> &Path {
        self.sockets.path()
    }

    /// What each aggregator says.
    pub fn status(&self) -> Result<Vec<Status>> {
        self.aggregators
            .keys()
            .map(|chip| Ok(gpuvmk_control_client::status(&self.control_socket(*chip))?))
            .collect()
    }

    /// Calls a method of the only shared GPU's aggregator.
    pub fn call(&self, method: &str, params: &Value) -> Result<Value> {
        let chip = self.aggregators.keys().next().context("No GPU is shared")?;
        Ok(gpuvmk_control_client::call(&self.control_socket(*chip), method, params)?)
    }

    /// The tenants of all aggregators.
    pub fn tenants(&self) -> Result<Vec<TenantStatus>> {
        Ok(self.status()?.into_iter().flat_map(|status| status.tenants).collect())
    }

    /// The processor time that all daemons have used.
    pub fn cpu_time(&self) -> Duration {
        self.devices.iter().chain(self.aggregators.values()).map(Daemon::cpu_time).sum()
    }

    /// Bytes that all daemons have written to their logs.
    pub fn log_bytes(&self) -> u64 {
        self.devices.iter().chain(self.aggregators.values()).map(Daemon::log_bytes).sum()
    }

    /// Daemons that have ended, and those that say that a thread of theirs broke down.
    pub fn damage(&mut self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for daemon in self.daemons() {
            let name = daemon.process().name().to_owned();
            if !daemon.runs()? {
                found.push(format!("{name} ended: {}", daemon.last_words()));
            } else if daemon.log().contains("panicked at") {
                found.push(format!("{name} panicked"));
            }
        }
        Ok(found)
    }

    /// The process that serves GPU `index`.
    pub fn device(&mut self, index: usize) -> Option<&mut Daemon> {
        self.devices.get_mut(index)
    }

    /// All daemons, devices first.
    pub fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        self.devices.iter_mut().chain(self.aggregators.values_mut())
    }

    /// The process of the first aggregator.
    pub fn aggregator(&mut self) -> Option<&mut Daemon> {
        self.aggregators.values_mut().next()
    }

    /// Where the register accesses of GPU `index` are recorded, if they are.
    pub fn trace(&self, index: usize) -> Option<PathBuf> {
        let gpu = self.spec.gpus.get(index).filter(|gpu| gpu.trace)?;
        Some(self.trace_path(&gpu.name))
    }

    /// Starts the process of GPU `index` again, in place of one that has ended.
    pub fn restart_device(&mut self, index: usize) -> Result<()> {
        let device = self.spawn_device(index)?;
        if let Some(place) = self.devices.get_mut(index) {
            *place = device;
        }
        self.wait_device(index)
    }

    /// Starts the aggregators that mediated GPUs need, also in place of those that have ended.
    pub fn start_aggregators(&mut self) -> Result<()> {
        let chips: BTreeSet<Chip> = self.spec.mediated().map(|gpu| self.host(gpu.chip)).collect();
        for chip in chips {
            let running = match self.aggregators.get_mut(&chip) {
                Some(daemon) => daemon.runs()?,
                None => false,
            };
            if !running {
                let daemon = self.start_aggregator(chip)?;
                self.aggregators.insert(chip, daemon);
            }
        }
        Ok(())
    }

    fn start_aggregator(&self, chip: Chip) -> Result<Daemon> {
        let (socket, control) = (self.shared_socket(chip), self.control_socket(chip));
        let name = format!("gpu-{chip}");
        let mut config = gpu_config(&name, &self.spec, chip, &socket, &control);
        let recorder = quoted(&self.schedule_recorder(chip));
        config.push_str(&format!("\n[trace.socket]\npath = {recorder}\n"));
        let path = self.write_config(&format!("{name}.toml"), &config)?;
        let arguments = ["aggregator", &path];
        let log = format!("aggregator-{chip}");
        let mut daemon = self.start_daemon(&arguments, &log)?;
        daemon.wait_listening(&socket)?;
        daemon.wait_listening(&control)?;
        Ok(daemon)
    }

    fn trace_path(&self, name: &str) -> PathBuf {
        self.spec.folder.join(trace_name(name))
    }

    /// Ends everything, devices first; returns what was wrong about it.
    pub fn stop(&mut self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        for daemon in self.daemons() {
            problems.extend(daemon.stop()?);
        }
        for entry in fs::read_dir(self.sockets.path())?.flatten() {
            problems.push(format!("left behind: {}", entry.file_name().to_string_lossy()));
        }
        Ok(problems)
    }

    /// The name of GPU `index`.
    pub fn name(&self, index: usize) -> &str {
        self.spec.gpus.get(index).map_or("none", |gpu| gpu.name.as_str())
    }

    fn wait_device(&mut self, index: usize) -> Result<()> {
        let socket = self.socket(index);
        match self.devices.get_mut(index) {
            Some(device) => device.wait_listening(&socket),
            None => Ok(()),
        }
    }

    fn start_daemon(&self, arguments: &[&str], log: &str) -> Result<Daemon> {
        Daemon::start_with(&self.spec.gpuvmk, arguments, &self.spec.folder, log, self.spec.environment)
    }

    fn spawn_device(&self, index: usize) -> Result<Daemon> {
        let gpu = self.spec.gpus.get(index).with_context(|| format!("There is no GPU {index}"))?;
        let socket = self.socket(index);
        match gpu.topology {
            Topology::Native => {
                let (path, vram) = (socket_option(&socket), format!("{}M", gpu.vram_mib));
                let trace = self.trace_path(&gpu.name).to_string_lossy().into_owned();
                let mut arguments = vec!["softgpu", &path, "--vram", &vram];
                if gpu.trace {
                    arguments.extend(["--trace", &trace]);
                }
                self.start_daemon(&arguments, &format!("softgpu-{}", gpu.name))
            }
            Topology::Mediated => {
                let mut config = vm_config(gpu, self.spec.channels, &self.shared_socket(gpu.chip), &socket);
                if gpu.trace {
                    // Paths in a file are relative to it.
                    let path = quoted(Path::new(&trace_name(&gpu.name)));
                    config.push_str(&format!("\n[trace]\npath = {path}\n"));
                }
                let recorder = quoted(&self.recorder(index));
                config.push_str(&format!("\n[trace.socket]\npath = {recorder}\n"));
                if !gpu.display.is_empty() {
                    let viewers = quoted(&self.sockets.path().join(format!("{}.viewers", gpu.name)));
                    config.push_str(&format!("\n[viewers]\npath = {viewers}\n"));
                }
                let path = self.write_config(&format!("{}.toml", gpu.name), &config)?;
                let name = format!("device-{}", gpu.name);
                self.start_daemon(&["device", &path], &name)
            }
        }
    }

    fn write_config(&self, name: &str, text: &str) -> Result<String> {
        let path = self.spec.folder.join(name);
        fs::write(&path, text).with_context(|| format!("Cannot write {}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }
}

fn trace_name(gpu: &str) -> String {
    format!("{gpu}.trace")
}

fn socket_option(path: &Path) -> String {
    format!("--socket-path={}", path.display())
}
