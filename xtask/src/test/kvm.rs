//! The KVM front end: micro guests on this host's KVM, and a stock kernel under `gpuvmk vmm` in a machine of its own, whose processors QEMU
//! emulates with AMD's virtualisation, so that any host can run it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::debian_disk;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::guest_build;
use gpuvmk_lab::initramfs::{self, ImageFile};
use gpuvmk_lab::kernel::{GuestKernel, KernelSeries, Role};
use gpuvmk_lab::machine::{Accelerator, Machine, MachineSpec, Outcome};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::report::{ProgramResult, Report};
use gpuvmk_lab::verdict::{self, Expected, Verdict};
use serde_json::{Value, json};

use super::Arguments;
use super::host_files::{self, file, read};
use super::nested;
use crate::cases::{Guest, everything};
use crate::golden;
use crate::workshop::Workshop;

/// The kernel of the outer machine.
pub const OUTER: KernelSeries = KernelSeries::V6_12;
/// Memory of the outer machine, most of which are files.
const OUTER_MIB: u32 = 3072;
const OUTER_CPUS: u32 = 2;
/// Seconds that everything inside may take: an exit of the inner guest costs 40 microseconds there.
const LIMIT_S: u64 = 420;
const VRAM_MIB: u32 = 128;

/// What is tested alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Micro guests on this host's KVM, then stock kernels under `gpuvmk vmm` in an outer machine.
    Kvm,
    /// The stock kernels alone.
    NestedKvm,
    /// A GPU given away through VFIO in an outer machine with an IOMMU.
    Nested,
}

/// What an inner guest is to do.
#[derive(Debug, Clone)]
struct Task {
    name: String,
    chip: Chip,
    kernel: KernelSeries,
    programs: Vec<&'static str>,
    cpus: u32,
    reboots: u8,
    /// Compare what it does to registers with what the same guest does under QEMU.
    compare: bool,
}

impl Task {
    /// Everything that there is for a chip, one that resets its machine while a second processor runs and is
    /// stopped by a signal when it boots once more, and one whose accesses are compared.
    fn all() -> [Self; 4] {
        let of = |name: &str, chip: Chip, programs: &[&'static str]| Self {
            name: format!("{chip}{name}").to_lowercase(),
            chip,
            kernel: chip.usual_kernel(),
            programs: [&[DEBIAN], programs].concat(),
            cpus: 1,
            reboots: 0,
            compare: false,
        };
        let full = |chip: Chip| of("", chip, everything(chip, chip.usual_kernel()));
        let resets = Self { cpus: 2, reboots: 1, ..of("-reset", Chip::Gf100, &["probe", "copy"]) };
        let compared = Self { compare: true, ..of("-trace", Chip::Gf100, PROBE) };
        [full(Chip::Gf100), full(Chip::Gh100), resets, compared]
    }

    /// The inner kernel's command line.
    fn words(&self) -> String {
        format!(
            "console=ttyS0 panic=-1 loglevel=7 gpuvmk.root=/dev/vda gpuvmk.run={} gpuvmk.reboots={} gpuvmk.limit=120",
            self.programs.join("+"),
            self.reboots
        )
    }

    /// The outer machine's program.
    fn host_call(&self) -> String {
        let resets = self.reboots > 0;
        format!("host:cpus={}:reboot={resets}:stop={resets}:marks={MARKS}", self.cpus)
    }
}

/// The kernels of inner guests.
pub fn inner_kernels() -> BTreeSet<KernelSeries> {
    Task::all().into_iter().map(|task| task.kernel).collect()
}

/// What guests do whose traces are compared.
const PROBE: &[&str] = &["probe"];
/// What is left out of the comparison: PTIMER's times, how often a runlist's end is looked for, and `NV_PFB_SYSMEM_FLUSH_ADDR`, where the
/// kernel says which page of its memory it has taken.
const LEFT_OUT: &str = "range=0x9000-0x9fff,0x227c,0x100c10";

/// The program that looks at the inner guest's root, and how many blocks it writes there.
const DEBIAN: &str = "debian";
const MARKS: u32 = 2048;

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

    fn to_json(&self) -> Value {
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

/// Runs a part, and judges it.
pub fn run(part: Part, arguments: &Arguments) -> Result<bool> {
    if part == Part::Nested {
        return nested::run(arguments);
    }
    let micro = if part == Part::Kvm { Some(micro()?) } else { None };
    let stock = stock_kernels(arguments)?;
    let ok = micro != Some(false) && stock.iter().all(Nested::ok);
    if arguments.json {
        let machines: Vec<_> = stock.iter().map(Nested::to_json).collect();
        println!("{}", json!({ "ok": ok, "micro_guests": micro, "stock_kernels": machines }));
    }
    Ok(ok)
}

/// Micro guests on this host.
fn micro() -> Result<bool> {
    ensure!(
        Path::new("/dev/kvm").exists(),
        "This host has no /dev/kvm: micro guests need KVM (any kind of it will do, PVM too); nested-kvm alone does not"
    );
    let status = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--package", "gpuvmk", "--test", "kvm_micro"])
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("Cannot run cargo")?;
    Ok(status.success())
}

/// Stock kernels of both chips under `gpuvmk vmm`, each in an outer machine.
fn stock_kernels(arguments: &Arguments) -> Result<Vec<Nested>> {
    let gpuvmk = arguments.gpuvmk()?;
    let mut all = Vec::new();
    for task in Task::all().into_iter().filter(|task| arguments.wants(&task.name)) {
        let nested = one(&task, &gpuvmk, &arguments.logs)?;
        let verdict = if nested.ok() { "ok" } else { "FAILED" };
        eprintln!("nested-kvm {}: {verdict}, {:.1} s", task.name, nested.wall.as_secs_f64());
        nested.problems.iter().for_each(|problem| eprintln!("    {problem}"));
        all.push(nested);
    }
    ensure!(!all.is_empty(), "No such guest: there are {}", Task::all().map(|task| task.name).join(", "));
    Ok(all)
}

fn one(task: &Task, gpuvmk: &Path, logs: &Path) -> Result<Nested> {
    let Task { name, chip, kernel, .. } = task.clone();
    let cache = Cache::open()?;
    let init = guest_build::obtain(&cache)?;
    let inner = GuestKernel::obtain_for(&cache, kernel, Role::NouveauWithDisk)?;
    let firmware = Firmware::for_kernel(kernel);
    let label = format!("{}-disk", firmware.label());
    let image = initramfs::obtain(&cache, &inner, &init, &firmware.files(&cache, gpuvmk)?, &label)?;
    let outer = GuestKernel::obtain_for(&cache, OUTER, Role::Host)?;
    let mut files = host_files(task, gpuvmk, [&inner.image, &image, &debian_disk::obtain(&cache)?])?;
    if task.compare {
        let trace = trace_under_qemu(task, gpuvmk, logs, &inner)?;
        files.push(file("qemu.trace", read(&trace)?));
        files.push(file("leave-out", LEFT_OUT.as_bytes().to_vec()));
    }
    let label = format!("host-{name}");
    let spec = MachineSpec {
        name: label.clone(),
        folder: logs.join(format!("nested-kvm-{name}")),
        initramfs: initramfs::obtain_with(&cache, &outer, &init, &files, &label)?,
        kernel: outer,
        memory_mib: OUTER_MIB,
        cpus: OUTER_CPUS,
        sockets: Vec::new(),
        accelerator: Accelerator::TcgWithSvm,
        iommu: false,
        programs: vec![task.host_call()],
        nouveau_options: Vec::new(),
        kernel_words: vec!["gpuvmk.bare=1".to_owned(), format!("gpuvmk.limit={LIMIT_S}")],
        reboots: 0,
        timeout: Duration::from_secs(LIMIT_S + 60),
        takes_orders: false,
        monitor: None,
    };
    let outcome = Machine::start(&Qemu::obtain(&cache)?, spec)?.wait(&mut |_| {})?;
    let Verdict { problems, results, .. } = judge(outcome.clone(), task);
    Ok(Nested { name, chip, kernel, problems, results, wall: outcome.wall })
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
    let mut verdict =
        verdict::judge(&inner, &Expected { programs, gpus: 1, boots: usize::from(task.reboots) + 1 });
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
fn host_files(task: &Task, gpuvmk: &Path, [kernel, initramfs, disk]: [&Path; 3]) -> Result<Vec<ImageFile>> {
    let mut files = host_files::gpuvmk(gpuvmk)?;
    files.extend([
        file("gpu.toml", gpu_config(task.chip).into_bytes()),
        file("vm.toml", vm_config(task).into_bytes()),
        file("words", task.words().into_bytes()),
        file("vmlinuz", read(kernel)?),
        file("initramfs.cpio", read(initramfs)?),
        file("disk.raw", read(disk)?),
    ]);
    Ok(files)
}

fn gpu_config(chip: Chip) -> String {
    format!(
        "name = \"gpu0\"\nbackend = \"soft\"\nchip = \"{chip}\"\nvram = \"{}M\"\n\n[socket]\npath = \"/run/gpu.sock\"\n",
        VRAM_MIB + 192
    )
}

fn vm_config(task: &Task) -> String {
    let chip = task.chip;
    // Windows stay mapped: they are not registers.
    let trace = "\n[trace]\npath = \"/run/inner.trace\"\nfilter = [\"bar=0\"]\n";
    format!(
        "name = \"inner\"\ngpu = \"/run/gpu.sock\"\nchip = \"{chip}\"\nvram = \"{VRAM_MIB}M\"\nchannels = 32\n{}",
        if task.compare { trace } else { "" }
    )
}

/// The trace of the same guest under QEMU: its accesses to registers.
fn trace_under_qemu(task: &Task, gpuvmk: &Path, logs: &Path, inner: &GuestKernel) -> Result<PathBuf> {
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
    let guest = Guest { vram_mib: VRAM_MIB, ..Guest::new("vm1", task.chip, task.kernel, PROBE) };
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
