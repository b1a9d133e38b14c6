//! A real kernel's VFIO: the software GPU is a PCI device of an outer machine with an IOMMU, whose stock kernel gives it to
//! gpuvmk.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::daemons::{Daemon, listens};
use gpuvmk_lab::guest_build;
use gpuvmk_lab::initramfs;
use gpuvmk_lab::kernel::{GuestKernel, Role};
use gpuvmk_lab::machine::{Accelerator, LOOK, Machine, MachineSpec};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::verdict::{self, Expected};
use serde_json::{Value, json};

use super::Arguments;
use super::host_files;
use super::kvm::OUTER;

/// What the outer machine runs: the group's interface, as Debian's kernels have no other.
const CARD: &str = "card:interface=group";
/// Memory of the outer machine.
const OUTER_MIB: u32 = 1024;
/// How long everything may take.
const LIMIT_S: u64 = 180;
/// How long the software GPU may take to listen.
const START: Duration = Duration::from_secs(20);

pub fn run(arguments: &Arguments) -> Result<bool> {
    let start = Instant::now();
    let gpuvmk = arguments.gpuvmk()?;
    let cache = Cache::open()?;
    let init = guest_build::obtain(&cache)?;
    let kernel = GuestKernel::obtain_for(&cache, OUTER, Role::CardHost)?;
    let files = host_files::gpuvmk(&gpuvmk)?;
    let folder = arguments.logs.join("nested");
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    let sockets = tempfile_folder()?;
    let socket = sockets.join("gpu.sock");
    let shown = socket.to_string_lossy();
    let mut gpu =
        Daemon::start(&gpuvmk, &["softgpu", "--socket-path", &shown, "--vram", "64M"], &folder, "softgpu")?;
    let waited = Instant::now();
    while !listens(&socket) {
        anyhow::ensure!(gpu.runs()?, "The software GPU ended: {}", gpu.last_words());
        anyhow::ensure!(waited.elapsed() < START, "The software GPU does not listen");
        std::thread::sleep(LOOK);
    }
    let spec = MachineSpec {
        name: "host-card".to_owned(),
        folder: folder.clone(),
        initramfs: initramfs::obtain_with(&cache, &kernel, &init, &files, "host-card")?,
        kernel,
        memory_mib: OUTER_MIB,
        cpus: 2,
        sockets: vec![socket.clone()],
        // The processor that inner guests will need.
        accelerator: Accelerator::TcgWithSvm,
        iommu: true,
        programs: vec![CARD.to_owned()],
        nouveau_options: Vec::new(),
        kernel_words: vec!["gpuvmk.bare=1".to_owned(), format!("gpuvmk.limit={LIMIT_S}")],
        reboots: 0,
        timeout: Duration::from_secs(LIMIT_S + 60),
        takes_orders: false,
        monitor: None,
    };
    let outcome = Machine::start(&Qemu::obtain(&cache)?, spec)?.wait(&mut |_| {})?;
    let expected = Expected { programs: vec![CARD.to_owned()], gpus: 1, boots: 1 };
    let mut verdict = verdict::judge(&outcome, &expected);
    verdict.problems.extend(gpu.stop()?.map(|problem| format!("the software GPU: {problem}")));
    fs::remove_dir_all(&sockets).with_context(|| format!("Cannot remove {}", sockets.display()))?;
    let ok = verdict.problems.is_empty();
    eprintln!("nested: {}, {:.1} s", if ok { "ok" } else { "FAILED" }, outcome.wall.as_secs_f64());
    verdict.problems.iter().for_each(|problem| eprintln!("    {problem}"));
    if arguments.json {
        let card = verdict.results.first().map_or(Value::Null, |result| json!(result.figures));
        // CAST: minutes, two digits.
        let minutes = (start.elapsed().as_secs_f64() / 0.6).round() / 100.0;
        println!(
            "{}",
            json!({
                "ok": ok, "group": ok, "copies_verified": card["engines"]["verified"],
                "stray_dma_stopped": card["engines"]["stray_dma_stopped"], "card": card, "problems": verdict.problems,
                "minutes": minutes,
            })
        );
    }
    Ok(ok)
}

/// A folder whose path is short enough for sockets.
fn tempfile_folder() -> Result<std::path::PathBuf> {
    let folder = std::env::temp_dir().join(format!("gpuvmk-nested-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    Ok(folder)
}
