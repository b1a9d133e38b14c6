//! The KVM front end: micro guests on this host's KVM, and a stock kernel under `gpuvmk vmm` in a machine of its own, whose processors QEMU
//! emulates with AMD's virtualisation, so that any host can run it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::guest_build;
use gpuvmk_lab::initramfs::{self, ImageFile};
use gpuvmk_lab::kernel::{GuestKernel, KernelSeries};
use gpuvmk_lab::machine::{Accelerator, Machine, MachineSpec, Outcome};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::report::{ProgramResult, Report};
use gpuvmk_lab::verdict::{self, Expected, Verdict};
use serde_json::{Value, json};

use super::Arguments;
use crate::cases::everything;
use crate::workshop::build_gpuvmk;

/// The kernel of the outer machine.
pub const OUTER: KernelSeries = KernelSeries::V6_12;
/// The module that has it.
pub const KVM: &str = "kvm_amd";
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
}

/// What came of one stock kernel.
#[derive(Debug)]
pub struct Nested {
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
            "chip": self.chip.to_string(), "kernel": self.kernel.name(), "ok": self.ok(), "problems": self.problems,
            "results": results, "seconds": self.wall.as_secs(),
        })
    }
}

/// Runs a part, and judges it.
pub fn run(part: Part, arguments: &Arguments) -> Result<bool> {
    let micro = if part == Part::Kvm { Some(micro()?) } else { None };
    let nested = nested(arguments)?;
    let ok = micro != Some(false) && nested.iter().all(Nested::ok);
    if arguments.json {
        let machines: Vec<_> = nested.iter().map(Nested::to_json).collect();
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
pub fn nested(arguments: &Arguments) -> Result<Vec<Nested>> {
    let gpuvmk = match &arguments.gpuvmk {
        Some(path) => path.canonicalize().with_context(|| format!("Cannot find {}", path.display()))?,
        None => build_gpuvmk()?,
    };
    let mut all = Vec::new();
    for chip in [Chip::Gf100, Chip::Gh100] {
        let nested = one(chip, &gpuvmk, &arguments.logs)?;
        let verdict = if nested.ok() { "ok" } else { "FAILED" };
        eprintln!("nested-kvm {chip}: {verdict}, {:.1} s", nested.wall.as_secs_f64());
        nested.problems.iter().for_each(|problem| eprintln!("    {problem}"));
        all.push(nested);
    }
    Ok(all)
}

fn one(chip: Chip, gpuvmk: &Path, logs: &Path) -> Result<Nested> {
    let cache = Cache::open()?;
    let init = guest_build::obtain(&cache)?;
    let kernel = chip.usual_kernel();
    let programs = everything(chip, kernel);
    let inner = GuestKernel::obtain(&cache, kernel)?;
    let firmware = Firmware::for_kernel(kernel);
    let image = initramfs::obtain(&cache, &inner, &init, &firmware.files(&cache, gpuvmk)?, firmware.label())?;
    let outer = GuestKernel::obtain_with(&cache, OUTER, KVM)?;
    let files = host_files(chip, gpuvmk, &inner.image, &image, programs)?;
    let label = format!("host-{chip}").to_lowercase();
    let folder = logs.join(format!("nested-kvm-{chip}").to_lowercase());
    let spec = MachineSpec {
        name: label.clone(),
        folder,
        initramfs: initramfs::obtain_with(&cache, &outer, &init, &files, &label)?,
        kernel: outer,
        memory_mib: OUTER_MIB,
        cpus: OUTER_CPUS,
        sockets: Vec::new(),
        accelerator: Accelerator::TcgWithSvm,
        programs: vec!["host".to_owned()],
        nouveau_options: Vec::new(),
        kernel_words: vec!["gpuvmk.bare=1".to_owned(), format!("gpuvmk.limit={LIMIT_S}")],
        reboots: 0,
        timeout: Duration::from_secs(LIMIT_S + 60),
        takes_orders: false,
        monitor: None,
    };
    let outcome = Machine::start(&Qemu::obtain(&cache)?, spec)?.wait(&mut |_| {})?;
    let Verdict { problems, results, .. } = judge(outcome.clone(), programs);
    Ok(Nested { chip, kernel, problems, results, wall: outcome.wall })
}

/// The outer machine says that it boots and how its program ended; all else is the inner guest's.
fn judge(outcome: Outcome, programs: &[&str]) -> Verdict {
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
    let programs = programs.iter().map(|program| (*program).to_owned()).collect();
    let mut verdict = verdict::judge(&inner, &Expected { programs, gpus: 1, boots: 1 });
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
fn host_files(
    chip: Chip,
    gpuvmk: &Path,
    kernel: &Path,
    initramfs: &Path,
    programs: &[&str],
) -> Result<Vec<ImageFile>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("Cannot read {}", path.display()));
    let file = |name: &str, contents: Vec<u8>| ImageFile {
        path: Path::new("host").join(name),
        contents,
        program: false,
    };
    let program = |name: &str, contents| ImageFile { program: true, ..file(name, contents) };
    let mut files = vec![
        program("gpuvmk", stripped(gpuvmk)?),
        file("gpu.toml", gpu_config(chip).into_bytes()),
        file("vm.toml", vm_config(chip).into_bytes()),
        file("words", words(programs).into_bytes()),
        file("vmlinuz", read(kernel)?),
        file("initramfs.cpio", read(initramfs)?),
    ];
    for (name, path) in libraries(gpuvmk)? {
        files.push(program(&format!("lib/{name}"), read(&path)?));
    }
    Ok(files)
}

/// The program without what only debuggers read, where there is a `strip`.
fn stripped(gpuvmk: &Path) -> Result<Vec<u8>> {
    let folder = tempfile_folder()?;
    let target = folder.join("gpuvmk");
    let done = Command::new("strip").args(["--strip-debug", "-o"]).arg(&target).arg(gpuvmk).status();
    let read_from = if done.is_ok_and(|status| status.success()) { target.as_path() } else { gpuvmk };
    let bytes = fs::read(read_from).with_context(|| format!("Cannot read {}", read_from.display()))?;
    fs::remove_dir_all(&folder).with_context(|| format!("Cannot remove {}", folder.display()))?;
    Ok(bytes)
}

fn tempfile_folder() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("gpuvmk-strip-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    Ok(folder)
}

/// The libraries that a program was linked with, and the loader, by name.
fn libraries(program: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("Cannot run ldd")?;
    ensure!(output.status.success(), "ldd does not know what {} needs", program.display());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found = BTreeMap::new();
    // `libc.so.6 => /lib/.../libc.so.6 (0x...)`, and `/lib64/ld-linux-x86-64.so.2 (0x...)`.
    for path in text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from) {
        if let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) {
            found.insert(name, path);
        }
    }
    Ok(found)
}

fn words(programs: &[&str]) -> String {
    format!("console=ttyS0 panic=-1 loglevel=7 gpuvmk.run={} gpuvmk.limit=120", programs.join("+"))
}

fn gpu_config(chip: Chip) -> String {
    format!(
        "name = \"gpu0\"\nbackend = \"soft\"\nchip = \"{chip}\"\nvram = \"{}M\"\n\n[socket]\npath = \"/run/gpu.sock\"\n",
        VRAM_MIB + 192
    )
}

fn vm_config(chip: Chip) -> String {
    format!(
        "name = \"inner\"\ngpu = \"/run/gpu.sock\"\nchip = \"{chip}\"\nvram = \"{VRAM_MIB}M\"\nchannels = 32\n"
    )
}
