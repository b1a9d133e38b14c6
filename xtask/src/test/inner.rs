//! Stock kernels under `gpuvmk vmm`, in an outer machine whose processors QEMU emulates with AMD's
//! virtualisation, so that any host can run it. Its GPU is a software GPU in there, or a card: a software GPU
//! out here, behind an IOMMU.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::back_ends;
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::debian_disk;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::guest_build;
use gpuvmk_lab::initramfs::{self, ImageFile};
use gpuvmk_lab::kernel::{GuestKernel, KernelSeries, Role};
use gpuvmk_lab::machine::{Accelerator, Beside, Machine, MachineSpec, Outcome};
use gpuvmk_lab::own_kernel;
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::report::{ProgramResult, Report};
use gpuvmk_lab::verdict::{self, Expected, Verdict};
use serde_json::{Value, json};

use super::card::SoftCard;
use super::host_files::{self, file, read};
use crate::cases::Guest;
use crate::golden;
use crate::workshop::Workshop;

/// The kernel of the outer machine.
pub const OUTER: KernelSeries = KernelSeries::V6_12;
/// Memory of the outer machine, most of which are files.
const OUTER_MIB: u32 = 3072;
/// Seconds that everything inside may take: an exit of the inner guest costs 40 microseconds there.
const LIMIT_S: u64 = 420;
const VRAM_MIB: u32 = 128;

/// VRAM of a VM whose GPU is a card: all that it reaches is locked in the outer machine's memory.
const CARD_VRAM_MIB: u32 = 64;

/// The program that looks at the inner guest's root, and how many blocks it writes there.
pub const DEBIAN: &str = "debian";
const MARKS: u32 = 2048;
/// The test of micro guests.
const MICRO: &str = "kvm_micro";
/// What is left out of the comparison: PTIMER's times, how often a runlist's end is looked for, and
/// `NV_PFB_SYSMEM_FLUSH_ADDR`, where the kernel says which page of its memory it has taken.
const LEFT_OUT: &str = "range=0x9000-0x9fff,0x227c,0x100c10";

/// What inner guests are to do.
#[derive(Debug, Clone)]
pub struct Task {
    pub name: String,
    pub chip: Chip,
    pub kernel: KernelSeries,
    /// With [`DEBIAN`] among them, the guest has a disk.
    pub programs: Vec<&'static str>,
    pub cpus: u32,
    pub reboots: u8,
    /// Compare what it does to registers with what a guest with these programs does under QEMU.
    pub compare: Option<&'static [&'static str]>,
    /// How many such guests at once.
    pub vms: u32,
    /// Their GPU is a card.
    pub card: bool,
    /// The only one has all of it.
    pub whole: bool,
    /// What runs that one: `vmm`, or QEMU with `vfio-pci` or `vfio-user`.
    pub front: &'static str,
    /// All that it does to registers is recorded.
    pub traced: bool,
    /// A micro guest comes before them.
    pub micro: bool,
    /// The outer kernel is one with iommufd.
    pub own_kernel: bool,
    /// It has a network by passt and a folder by virtiofsd.
    pub network: bool,
}

/// Seconds that a program inside may take, and the one with a network, which looks at many files.
const PROGRAM_S: u32 = 120;
const NETWORK_S: u32 = 300;

/// A word for kernels on emulated processors. Each trapped access takes long there, and others have the
/// processor meanwhile: nouveau, which makes tens of thousands of them in one go, is not stuck after 20 s.
const SLOW: &str = "watchdog_thresh=60";

impl Task {
    /// One guest of one processor.
    pub fn new(name: &str, chip: Chip, programs: &[&'static str]) -> Self {
        Self {
            name: name.to_owned(),
            chip,
            kernel: chip.usual_kernel(),
            programs: programs.to_vec(),
            cpus: 1,
            reboots: 0,
            compare: None,
            vms: 1,
            card: false,
            whole: false,
            front: "vmm",
            traced: false,
            micro: false,
            own_kernel: false,
            network: false,
        }
    }

    fn has_disk(&self) -> bool {
        self.programs.contains(&DEBIAN)
    }

    /// The inner kernel's command line.
    fn words(&self) -> String {
        format!(
            "console=ttyS0 panic=-1 loglevel=7 {}{SLOW} gpuvmk.run={} gpuvmk.reboots={} gpuvmk.limit={}",
            if self.has_disk() { "gpuvmk.root=/dev/vda " } else { "" },
            self.programs.join("+"),
            self.reboots,
            if self.network { NETWORK_S } else { PROGRAM_S }
        )
    }

    /// The outer machine's program.
    fn host_call(&self) -> String {
        let Self { vms, cpus, card, whole, front, network, .. } = self;
        let resets = self.reboots > 0;
        let marks = if self.has_disk() { MARKS } else { 0 };
        let interface = if self.own_kernel { "Cdev" } else { "Group" };
        let again = self.whole && self.traced;
        format!(
            "host:vms={vms}:cpus={cpus}:card={card}:interface={interface}:whole={whole}:front={front}:again={again}:reboot={resets}:stop={resets}:marks={marks}:network={network}"
        )
    }

    fn vram_mib(&self) -> u32 {
        if self.card { CARD_VRAM_MIB } else { VRAM_MIB }
    }
}

/// What came of one stock kernel.
#[derive(Debug)]
pub struct Nested {
    name: String,
    chip: Chip,
    kernel: KernelSeries,
    problems: Vec<String>,
    results: Vec<ProgramResult>,
    wall: Duration,
}

impl Nested {
    /// Whether it did all that it was asked, and said nothing unexplained.
    pub fn ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// For who reads it by program.
    pub fn to_json(&self) -> Value {
        let results: Vec<_> = self
            .results
            .iter()
            .map(|result| json!({ "prog": result.program, "ok": result.ok, "figures": result.figures }))
            .collect();
        json!({
            "name": self.name, "chip": self.chip.to_string(), "kernel": self.kernel.name(), "ok": self.ok(), "problems": self.problems,
            "results": results, "seconds": self.wall.as_secs(),
        })
    }
}

/// Runs a task, and says what came of it.
pub fn run(task: &Task, gpuvmk: &Path, logs: &Path) -> Result<Nested> {
    let nested = one(task, gpuvmk, logs)?;
    let verdict = if nested.ok() { "ok" } else { "FAILED" };
    eprintln!("nested {}: {verdict}, {:.1} s", task.name, nested.wall.as_secs_f64());
    nested.problems.iter().for_each(|problem| eprintln!("    {problem}"));
    Ok(nested)
}

fn one(task: &Task, gpuvmk: &Path, logs: &Path) -> Result<Nested> {
    let Task { name, chip, kernel, .. } = task.clone();
    let cache = Cache::open()?;
    let init = guest_build::obtain(&cache)?;
    let (role, label) = match task {
        _ if task.has_disk() => (Role::NouveauWithDisk, "-disk"),
        Task { network: true, .. } => (Role::NouveauWithNetwork, "-network"),
        _ => (Role::Nouveau, ""),
    };
    let inner = GuestKernel::obtain_for(&cache, kernel, role)?;
    let firmware = Firmware::for_kernel(kernel);
    let label = format!("{}{label}", firmware.label());
    let image = initramfs::obtain(&cache, &inner, &init, &firmware.files(&cache, gpuvmk, kernel)?, &label)?;
    let outer = outer_kernel(&cache, task.own_kernel, if task.card { Role::CardHost } else { Role::Host })?;
    let mut files = inner_files(task, gpuvmk, &inner.image, &image)?;
    if task.has_disk() {
        files.push(file("disk.raw", read(&debian_disk::obtain(&cache)?)?));
    }
    if task.network {
        files.extend(back_ends::files(&cache)?);
    }
    if let Some(programs) = task.compare {
        let trace = trace_under_qemu(task, programs, gpuvmk, logs, &inner)?;
        files.push(file("qemu.trace", read(&trace)?));
        files.push(file("leave-out", LEFT_OUT.as_bytes().to_vec()));
    }
    let label = format!("host-{name}");
    let folder = logs.join(format!("nested-{name}"));
    let mut card = task.card.then(|| SoftCard::start(gpuvmk, &folder)).transpose()?;
    let spec = MachineSpec {
        initramfs: initramfs::obtain_with(&cache, &outer, &init, &files, &label)?,
        memory_mib: OUTER_MIB,
        // No more than inner guests need: on two processors, which QEMU 10.1 emulates in two threads, one of
        // two guests met a triple fault or stood still in at least 8 of 16 runs, with a card and with a
        // software GPU in there, pinned or not, and a single one stood still in 1 of 8 and 1 of 20; on one
        // processor none of two did in 9.
        cpus: task.cpus,
        sockets: card.iter().map(SoftCard::socket).collect(),
        iommu: task.card,
        programs: vec![task.host_call()],
        ..outer_machine(label, folder, outer, LIMIT_S)
    };
    let outcome = Machine::start(&Qemu::obtain(&cache)?, spec)?.wait(&mut |_| {})?;
    let Verdict { mut problems, results, .. } = judge(outcome.clone(), task);
    if let Some(card) = card.take() {
        problems.extend(card.stop()?);
    }
    Ok(Nested { name, chip, kernel, problems, results, wall: outcome.wall })
}

/// The kernel of a machine that is a host itself: Debian's, or one of our own configuration.
pub fn outer_kernel(cache: &Cache, own: bool, role: Role) -> Result<GuestKernel> {
    if own { own_kernel::obtain(cache) } else { GuestKernel::obtain_for(cache, OUTER, role) }
}

/// A machine that is a host itself, as far as all are alike.
pub fn outer_machine(name: String, folder: PathBuf, kernel: GuestKernel, limit_s: u64) -> MachineSpec {
    MachineSpec {
        name,
        folder,
        initramfs: PathBuf::new(),
        kernel,
        memory_mib: 0,
        cpus: 2,
        sockets: Vec::new(),
        accelerator: Accelerator::TcgWithSvm,
        iommu: false,
        beside: Beside::Nothing,
        programs: Vec::new(),
        nouveau_options: Vec::new(),
        // On a busy host no timer interrupt may come while the kernel looks for one, and it panics: its
        // switch for slow hosts.
        kernel_words: vec![
            "gpuvmk.bare=1".to_owned(),
            format!("gpuvmk.limit={limit_s}"),
            "no_timer_check".to_owned(),
            SLOW.to_owned(),
        ],
        reboots: 0,
        timeout: Duration::from_secs(limit_s + 60),
        takes_orders: false,
        monitor: None,
    }
}

/// How often inner guests boot, all together.
fn boots(task: &Task) -> usize {
    // CAST: a few.
    (usize::from(task.reboots) + 1) * task.vms as usize
}

/// The outer machine says that it boots and how its program ended; all else is the inner guest's.
fn judge(outcome: Outcome, task: &Task) -> Verdict {
    let is_host = |report: &Report| match report {
        Report::Result(result) => result.program == "host",
        Report::Event { name, fields } => {
            name == "start" && fields.get("prog").and_then(Value::as_str) == Some("host")
        }
    };
    let host: Vec<_> = outcome.reports.iter().filter(|report| is_host(report)).cloned().collect();
    let mut first_boot = true;
    let inner = outcome.reports.into_iter().filter(|report| {
        let is_outer_boot =
            matches!(report, Report::Event { name, .. } if name == "boot") && std::mem::take(&mut first_boot);
        !is_outer_boot && !is_host(report)
    });
    let inner = Outcome { reports: inner.collect(), ..outcome };
    let programs = task.programs.iter().map(|program| (*program).to_owned()).collect();
    let mut verdict = verdict::judge(&inner, &Expected { programs, gpus: 1, boots: boots(task) });
    let results = host.into_iter().filter_map(|report| match report {
        Report::Result(result) => Some(result),
        Report::Event { .. } => None,
    });
    let results: Vec<_> = results.collect();
    if results.is_empty() {
        verdict.problems.push("the outer machine's program gave no result".to_owned());
    }
    for result in &results {
        if !result.ok {
            let why = result.error.clone().unwrap_or_default();
            verdict.problems.push(format!("the outer machine's program failed: {why}"));
        }
    }
    verdict.results.extend(results);
    verdict
}

/// What lies in the outer machine's `/host`.
fn inner_files(task: &Task, gpuvmk: &Path, kernel: &Path, initramfs: &Path) -> Result<Vec<ImageFile>> {
    let mut files = host_files::gpuvmk(gpuvmk)?;
    files.extend([
        file("gpu.toml", gpu_config(task).into_bytes()),
        file("words", task.words().into_bytes()),
        file("vmlinuz", read(kernel)?),
        file("initramfs.cpio", read(initramfs)?),
    ]);
    if task.micro {
        files.push(host_files::program(MICRO, &host_files::test_program(MICRO)?)?);
    }
    if task.front != "vmm" {
        files.extend(host_files::qemu()?);
    }
    for number in 1..=task.vms {
        files.push(file(&format!("vm{number}.toml"), vm_config(task, number).into_bytes()));
    }
    Ok(files)
}

fn gpu_config(task: &Task) -> String {
    let gpu = if task.card {
        // The outer machine's program knows where it is.
        "backend = \"vfio\"\ndevice = \"ADDRESS\"".to_owned()
    } else {
        format!("backend = \"soft\"\nvram = \"{}M\"", VRAM_MIB + 192)
    };
    format!(
        "name = \"gpu0\"\nchip = \"{}\"\n{gpu}\n\n[socket]\npath = \"/run/gpu.sock\"\n\n[control]\npath = \"/run/gpu.control\"\n",
        task.chip
    )
}

fn vm_config(task: &Task, number: u32) -> String {
    let (chip, vram) = (task.chip, task.vram_mib());
    let gpu = if task.whole {
        "card = \"ADDRESS\"\n".to_owned()
    } else {
        format!("gpu = \"/run/gpu.sock\"\nchip = \"{chip}\"\nvram = \"{vram}M\"\nchannels = 32\n")
    };
    // Windows stay mapped: they are not registers.
    let trace = "\n[trace]\npath = \"/run/inner.trace\"\nfilter = [\"bar=0\"]\n";
    format!(
        "name = \"inner{number}\"\n{gpu}{}",
        if task.traced || task.compare.is_some() { trace } else { "" }
    )
}

/// The trace of the same guest under QEMU: its accesses to registers.
fn trace_under_qemu(
    task: &Task,
    programs: &'static [&'static str],
    gpuvmk: &Path,
    logs: &Path,
    inner: &GuestKernel,
) -> Result<PathBuf> {
    let kinds = [(task.kernel, Firmware::for_kernel(task.kernel))].into();
    let logs = logs.join("nested-kvm-qemu");
    let workshop = Workshop::open(&kinds, &logs, Some(gpuvmk))?;
    let cache = Cache::open()?;
    let other = GuestKernel::obtain(&cache, task.kernel)?;
    ensure!(
        other.release == inner.release,
        "The kernels {} and {} in {} are not the same: remove both folders",
        other.release,
        inner.release,
        cache.root().display()
    );
    let guest = Guest { vram_mib: VRAM_MIB, ..Guest::new("vm1", task.chip, task.kernel, programs) };
    let trace = golden::record_guest(&workshop, "compared", &guest)?;
    let registers = logs.join("registers.trace");
    let status = Command::new(gpuvmk)
        .args(["trace", "filter"])
        .arg(&trace)
        .arg("--output")
        .arg(&registers)
        .arg("bar=0")
        .status()
        .context("Cannot start gpuvmk")?;
    ensure!(status.success(), "gpuvmk trace filter failed");
    Ok(registers)
}
