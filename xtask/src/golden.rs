//! `cargo xtask golden`: records how stock nouveau probes each chip, for `tests/golden`: what a vGPU answers
//! to those accesses is tested from then on without a guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use gpuvmk_chip::Face;
use gpuvmk_lab::cache::source_tree;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;
use gpuvmk_lab::verdict;
use serde_json::{Value, json};

use crate::cases::Guest;
use crate::workshop::{Workshop, expected};

/// Where the traces lie.
const FOLDER: &str = "tests/golden";

/// What is recorded.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// Only traces whose name contains this, such as `ad104`. May be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// A gpuvmk to use instead of building one
    #[arg(long, value_name = "FILE")]
    gpuvmk: Option<PathBuf>,
}

/// Which kernels' probes of a chip are recorded. Where registers are the whole interface, each kernel's;
/// where firmware does what differs between kernels, one's. Of whatever is newest there is no recording: what
/// it is changes.
fn kernels(chip: Chip) -> Vec<KernelSeries> {
    match chip.face {
        Face::Registers => KernelSeries::NUMBERED.to_vec(),
        Face::Gsp => vec![chip.usual_kernel()],
    }
}

/// The file of a probe.
fn name(chip: Chip, kernel: KernelSeries) -> String {
    format!("{}-linux-{kernel}.trace.xz", chip.firmware_folder())
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let all = Chip::ALL.iter().flat_map(|chip| kernels(*chip).into_iter().map(|kernel| (*chip, kernel)));
    let wanted = |name: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|part| name.contains(part.as_str()))
    };
    let drivers: Vec<_> = all.filter(|(chip, kernel)| wanted(&name(*chip, *kernel))).collect();
    ensure!(!drivers.is_empty(), "No trace has such a name");
    let kinds = drivers.iter().map(|(_, kernel)| (*kernel, Firmware::for_kernel(*kernel))).collect();
    let workshop = Workshop::open(&kinds, Path::new("target/xtask-golden"), arguments.gpuvmk.as_deref())?;
    let folder = source_tree().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    let mut files = Vec::new();
    for (chip, kernel) in drivers {
        let name = name(chip, kernel);
        let file = folder.join(&name);
        let entries = record(&workshop, chip, kernel, &file).with_context(|| name.clone())?;
        let bytes = fs::metadata(&file)?.len();
        println!("{name}: {entries} entries in {bytes} bytes");
        files.push(json!({ "name": name, "entries": entries, "bytes": bytes }));
    }
    if arguments.json {
        println!("{}", json!({ "ok": true, "files": files }));
    }
    Ok(true)
}

/// Boots a guest under QEMU; the trace of all that it does to its vGPU.
pub fn record_guest(workshop: &Workshop, label: &str, guest: &Guest) -> Result<PathBuf> {
    let guest = Guest { trace: true, ..guest.clone() };
    let mut rig = workshop.rig(label, Topology::Mediated, std::slice::from_ref(&guest))?;
    let outcome = workshop.start(label, guest.name, &rig, &guest, 0)?.wait(&mut |_| {})?;
    let verdict = verdict::judge(&outcome, &expected(&guest));
    ensure!(verdict.ok(), "the guest failed: {}", verdict.problems.join("; "));
    let trace = rig.trace(0).context("the guest was not recorded")?;
    rig.stop()?;
    Ok(trace)
}

/// Boots a guest and keeps the trace of its probe. Returns how many entries that has.
fn record(workshop: &Workshop, chip: Chip, kernel: KernelSeries, file: &Path) -> Result<u64> {
    let guest_kernel = workshop.kernel(kernel).context("the kernel is not there")?;
    ensure!(
        guest_kernel.is_of_its_series(),
        "the archive has no Linux {kernel} any more, and {} stands in for it: its trace would bear a wrong name",
        guest_kernel.release
    );
    let guest = Guest::new("vm1", chip, kernel, &["probe"]);
    let trace = record_guest(workshop, &format!("{chip}-{kernel}"), &guest)?;
    let verb = |arguments: &[&str], trace: &Path| -> Result<Vec<u8>> {
        let mut command = Command::new(workshop.gpuvmk());
        let output =
            command.arg("trace").args(arguments).arg(trace).output().context("Cannot start gpuvmk")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "'gpuvmk trace {}' failed: {said}", arguments.join(" "));
        Ok(output.stdout)
    };
    let found: Value = serde_json::from_slice(&verb(&["verify", "--json"], &trace)?)?;
    ensure!(found["lost"] == 0, "entries were lost: {found}");
    let to = file.to_str().context("the folder's name is no text")?;
    verb(&["filter", "--no-times", "--output", to], &trace)?;
    found["entries"].as_u64().context("verify does not say how many entries there are")
}
