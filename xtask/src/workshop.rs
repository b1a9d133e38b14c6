//! What every case needs: QEMU, kernels, guest programs and the gpuvmk program, obtained once.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::{Cache, source_tree};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::{GuestKernel, KernelSeries};
use gpuvmk_lab::machine::{Accelerator, Beside, Machine, MachineSpec};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::rig::{Backend, CHANNELS, GpuSpec, Rig, RigSpec, SHARED_AS_IT_COMES, Topology};
use gpuvmk_lab::verdict::Expected;
use gpuvmk_lab::{guest_build, initramfs, nvidia, nvk};

use crate::cases::Guest;

/// What a shared GPU has beside the partitions.
const SPARE_VRAM_MIB: u32 = 768;
const MEMORY_MIB: u32 = 512;
/// The same for guests with Vulkan, whose initramfs takes a part of it.
const VULKAN_MEMORY_MIB: u32 = 768;
/// The longest that a guest may take that does what it is told, one thing after the other.
const UNDER_ORDERS: Duration = Duration::from_secs(3000);
/// The longest that a guest may take. The slowest case takes about a minute on a quiet machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The same with NVIDIA's own driver: each of twenty checks has a context of its own, and a machine with more
/// to do than it has processors needs more than five minutes for them.
const NVIDIA_TIMEOUT: Duration = Duration::from_secs(1200);

/// The tools, ready.
#[derive(Debug)]
pub struct Workshop {
    qemu: Qemu,
    gpuvmk: PathBuf,
    guests: BTreeMap<(KernelSeries, Firmware), (GuestKernel, PathBuf)>,
    accelerator: Accelerator,
    logs: PathBuf,
}

impl Workshop {
    /// Obtains everything for guests with these kernels and this firmware.
    ///
    /// gpuvmk is built as users run it, unless `gpuvmk` names one.
    pub fn open(
        kinds: &BTreeSet<(KernelSeries, Firmware)>,
        logs: &Path,
        gpuvmk: Option<&Path>,
    ) -> Result<Self> {
        let cache = Cache::open()?;
        let qemu = Qemu::obtain(&cache)?;
        let init = guest_build::obtain(&cache)?;
        let accelerator = Accelerator::of_this_machine();
        let gpuvmk = match gpuvmk {
            Some(path) => path.canonicalize().with_context(|| format!("Cannot find {}", path.display()))?,
            None => build_gpuvmk()?,
        };
        let mut guests = BTreeMap::new();
        for &(series, firmware) in kinds {
            let files = firmware.files(&cache, &gpuvmk, series)?;
            let guest = if firmware == Firmware::NvidiaDriver {
                nvidia::obtain(&cache, series, &init, &files)?
            } else {
                let kernel = GuestKernel::obtain(&cache, series)?;
                let image = initramfs::obtain(&cache, &kernel, &init, &files, &firmware.label())?;
                (kernel, image)
            };
            guests.insert((series, firmware), guest);
        }
        Ok(Self { qemu, gpuvmk, guests, accelerator, logs: logs.to_owned() })
    }

    /// How guests' processors are run.
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// The kernel of a series, if guests of the cases have it.
    pub fn kernel(&self, series: KernelSeries) -> Option<&GuestKernel> {
        let mut guests = self.guests.iter().filter(|((_, firmware), _)| *firmware != Firmware::NvidiaDriver);
        guests.find(|((of, _), _)| *of == series).map(|(_, (kernel, _))| kernel)
    }

    /// Which kernel each series is today.
    pub fn kernels(&self) -> BTreeMap<KernelSeries, &str> {
        // NVIDIA's driver has older kernels than others of the series, which count where there are any.
        let with_it = |with: bool| {
            self.guests.iter().filter(move |((_, firmware), _)| (*firmware == Firmware::NvidiaDriver) == with)
        };
        let guests = with_it(true).chain(with_it(false));
        guests.map(|((series, _), (kernel, _))| (*series, kernel.release.as_str())).collect()
    }

    /// QEMU.
    pub fn qemu(&self) -> &Qemu {
        &self.qemu
    }

    /// The gpuvmk program.
    pub fn gpuvmk(&self) -> &Path {
        &self.gpuvmk
    }

    /// The folder for a case's logs.
    pub fn folder(&self, case: &str) -> PathBuf {
        self.logs.join(case)
    }

    /// Starts the GPUs of `guests`.
    pub fn rig(&self, case: &str, topology: Topology, guests: &[Guest]) -> Result<Rig> {
        self.forget_logs(case)?;
        Rig::start(self.rig_spec(case, topology, guests))
    }

    /// Starts the GPUs of one guest, each as `topologies` says.
    pub fn mixed_rig(&self, case: &str, topologies: &[Topology], guest: &Guest) -> Result<Rig> {
        ensure!(
            topologies.len() == guest.gpus.len(),
            "Each GPU of {} is either native or mediated",
            guest.name
        );
        self.forget_logs(case)?;
        let mut spec = self.rig_spec(case, Topology::Mediated, std::slice::from_ref(guest));
        for (gpu, topology) in spec.gpus.iter_mut().zip(topologies) {
            gpu.topology = *topology;
        }
        Rig::start(spec)
    }

    /// Removes the logs of an earlier run of this case: daemons append to theirs, and what they count is read
    /// there.
    pub fn forget_logs(&self, case: &str) -> Result<()> {
        let folder = self.folder(case);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("Cannot remove {}", folder.display()))
            }
            _ => Ok(()),
        }
    }

    /// What the GPUs of `guests`, all native or all mediated, are made from.
    pub fn rig_spec(&self, case: &str, topology: Topology, guests: &[Guest]) -> RigSpec {
        RigSpec {
            gpuvmk: self.gpuvmk.clone(),
            folder: self.folder(case),
            backend: Backend::default(),
            devices_first: false,
            gpus: guests.iter().flat_map(|guest| gpus(guest, topology)).collect(),
            spare_vram_mib: SPARE_VRAM_MIB,
            policy: SHARED_AS_IT_COMES,
            channels: CHANNELS,
            stubborn: false,
            environment: &[],
        }
    }

    /// Starts a guest whose first GPU is the rig's GPU `first_gpu`; `label` names its logs.
    pub fn start(
        &self,
        case: &str,
        label: &str,
        rig: &Rig,
        guest: &Guest,
        first_gpu: usize,
    ) -> Result<Machine> {
        Machine::start(&self.qemu, self.machine(case, label, rig, guest, first_gpu)?)
    }

    /// The same with a monitor, for whoever asks QEMU.
    pub fn start_with_monitor(
        &self,
        case: &str,
        label: &str,
        rig: &Rig,
        guest: &Guest,
        first_gpu: usize,
    ) -> Result<Machine> {
        let spec = self.machine(case, label, rig, guest, first_gpu)?;
        let monitor = Some(rig.socket_folder().join(format!("{label}.qmp")));
        Machine::start(&self.qemu, MachineSpec { monitor, ..spec })
    }

    /// The same with a guest whose programs take orders, for as long as it takes.
    pub fn start_with_orders(
        &self,
        case: &str,
        label: &str,
        rig: &Rig,
        guest: &Guest,
        first_gpu: usize,
    ) -> Result<Machine> {
        let spec = self.machine(case, label, rig, guest, first_gpu)?;
        let monitor = Some(rig.socket_folder().join(format!("{label}.qmp")));
        Machine::start(&self.qemu, MachineSpec { takes_orders: true, timeout: UNDER_ORDERS, monitor, ..spec })
    }

    fn machine(
        &self,
        case: &str,
        label: &str,
        rig: &Rig,
        guest: &Guest,
        first_gpu: usize,
    ) -> Result<MachineSpec> {
        let (kernel, initramfs) = self
            .guests
            .get(&(guest.kernel, guest.firmware))
            .with_context(|| format!("The kernel {} is not there", guest.kernel))?;
        let (initramfs, memory_mib) = match guest.vulkan {
            false => (initramfs.clone(), MEMORY_MIB),
            true => (nvk::behind(&Cache::open()?, initramfs, guest.kernel)?, VULKAN_MEMORY_MIB),
        };
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        Ok(MachineSpec {
            name: label.to_owned(),
            folder: self.folder(case).join(label),
            kernel: kernel.clone(),
            initramfs,
            memory_mib: guest.memory_mib.unwrap_or(memory_mib),
            cpus: guest.cpus,
            sockets: (first_gpu..first_gpu + guest.gpus.len()).map(|index| rig.socket(index)).collect(),
            accelerator: self.accelerator,
            iommu: guest.iommu,
            beside: Beside::Nothing,
            programs: words(guest.programs),
            nouveau_options: words(guest.nouveau_options),
            kernel_words: words(guest.kernel_words),
            reboots: guest.reboots,
            timeout: if guest.firmware == Firmware::NvidiaDriver { NVIDIA_TIMEOUT } else { TIMEOUT },
            takes_orders: false,
            monitor: None,
        })
    }
}

/// A guest's GPUs.
fn gpus(guest: &Guest, topology: Topology) -> Vec<GpuSpec> {
    let name = |number: usize| match guest.gpus.len() {
        1 => guest.name.to_owned(),
        _ => format!("{}-{number}", guest.name),
    };
    let spec = |(number, &chip)| GpuSpec {
        name: name(number),
        chip,
        topology,
        vram_mib: guest.vram_mib,
        trace: guest.trace,
        bar3: guest.bar3,
        display: guest.display,
    };
    (1..).zip(&guest.gpus).map(spec).collect()
}

/// What a guest is expected to do.
pub fn expected(guest: &Guest) -> Expected {
    Expected {
        programs: guest.programs.iter().map(|program| (*program).to_owned()).collect(),
        gpus: guest.gpus.len(),
        boots: guest.reboots as usize + 1,
    }
}

/// The environment variable that names a folder of programs that are built already.
const BUILT: &str = "GPUVMK_BUILT";

/// One of this tree's programs, if it was built before this run; an error if it is not where it is said to
/// be.
pub fn built(program: &str) -> Result<Option<PathBuf>> {
    let Some(folder) = env::var_os(BUILT).filter(|folder| !folder.is_empty()) else { return Ok(None) };
    let path = source_tree().join(folder).join(program);
    ensure!(path.is_file(), "{BUILT} is set, but there is no program {}", path.display());
    Ok(Some(path))
}

/// Builds gpuvmk as users run it, unless it is built already.
pub fn build_gpuvmk() -> Result<PathBuf> {
    build_program("gpuvmk")
}

/// The same for a program of the package of its name.
pub fn build_program(name: &str) -> Result<PathBuf> {
    if let Some(path) = built(name)? {
        return Ok(path);
    }
    let tree = source_tree();
    eprintln!("building {name}");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(&tree)
        .args(["build", "--quiet", "--release", "--package", name, "--bin", name])
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .with_context(|| format!("Cannot start cargo to build {name}"))?;
    ensure!(status.success(), "{name} does not build: cargo ended with {status}");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), |path| tree.join(path));
    Ok(target.join("release").join(name))
}
