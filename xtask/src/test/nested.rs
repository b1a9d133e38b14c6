//! A real kernel's VFIO: the software GPU is a PCI device of an outer machine with an IOMMU, whose stock kernel gives it to gpuvmk. There it is
//! looked at by itself, and shared by inner guests.

use std::time::Instant;

use anyhow::{Result, ensure};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::guest_build;
use gpuvmk_lab::initramfs;
use gpuvmk_lab::kernel::{GuestKernel, Role};
use gpuvmk_lab::machine::{Machine, MachineSpec};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::report::ProgramResult;
use gpuvmk_lab::verdict::{self, Expected};
use serde_json::{Value, json};

use super::Arguments;
use super::card::SoftCard;
use super::host_files;
use super::inner::{self, Nested, OUTER, Task, outer_machine};

/// The case that looks at the card.
const LOOK: &str = "look";
/// What the outer machine runs then: the group's interface, as Debian's kernels have no other.
const CARD: &str = "card:interface=group";
/// Memory of the outer machine.
const OUTER_MIB: u32 = 1024;
/// How long everything may take.
const LIMIT_S: u64 = 180;

/// One stock guest on the card, two at once, and one that has it to itself: with its BARs mapped, with all of its accesses to
/// registers recorded, and below QEMU, by its own VFIO and by ours.
fn tasks() -> [Task; 6] {
    let one = Task { card: true, ..Task::new("one-guest", Chip::Gf100, &["probe", "copy"]) };
    let whole = Task { name: "whole-card".to_owned(), whole: true, ..one.clone() };
    let traced = Task { name: "whole-card-traced".to_owned(), traced: true, ..whole.clone() };
    let qemu = Task { name: "qemu-vfio-pci".to_owned(), front: "vfio-pci", ..whole.clone() };
    let ours = Task { name: "qemu-whole-card".to_owned(), front: "vfio-user", ..whole.clone() };
    [one.clone(), Task { name: "two-guests".to_owned(), vms: 2, ..one }, whole, traced, qemu, ours]
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let start = Instant::now();
    let alone = arguments.wants(LOOK).then(|| look_at_card(arguments)).transpose()?;
    let gpuvmk = arguments.gpuvmk()?;
    let mut guests = Vec::new();
    for task in tasks().into_iter().filter(|task| arguments.wants(&task.name)) {
        guests.push(inner::run(&task, &gpuvmk, &arguments.logs)?);
    }
    ensure!(
        alone.is_some() || !guests.is_empty(),
        "No such case: there are {LOOK}, {}",
        tasks().map(|task| task.name).join(", ")
    );
    let ok = alone.as_ref().is_none_or(|card| card.problems.is_empty()) && guests.iter().all(Nested::ok);
    if arguments.json {
        let figures =
            alone.as_ref().and_then(|card| card.results.first()).map(|result| json!(result.figures));
        let engines = figures.as_ref().map_or(Value::Null, |figures| figures["engines"].clone());
        // CAST: minutes, two digits.
        let minutes = (start.elapsed().as_secs_f64() / 0.6).round() / 100.0;
        println!(
            "{}",
            json!({
                "ok": ok, "group": ok, "cdev": null, "copies_verified": engines["verified"],
                "stray_dma_stopped": engines["stray_dma_stopped"], "card": figures,
                "problems": alone.map(|card| card.problems),
                "guests": guests.iter().map(Nested::to_json).collect::<Vec<_>>(), "minutes": minutes,
            })
        );
    }
    Ok(ok)
}

/// What came of a look at the card.
struct Looked {
    problems: Vec<String>,
    results: Vec<ProgramResult>,
}

fn look_at_card(arguments: &Arguments) -> Result<Looked> {
    let gpuvmk = arguments.gpuvmk()?;
    let cache = Cache::open()?;
    let init = guest_build::obtain(&cache)?;
    let kernel = GuestKernel::obtain_for(&cache, OUTER, Role::CardHost)?;
    let files = host_files::gpuvmk(&gpuvmk)?;
    let folder = arguments.logs.join("nested-look");
    let card = SoftCard::start(&gpuvmk, &folder)?;
    let spec = MachineSpec {
        initramfs: initramfs::obtain_with(&cache, &kernel, &init, &files, "host-card")?,
        memory_mib: OUTER_MIB,
        sockets: vec![card.socket()],
        iommu: true,
        programs: vec![CARD.to_owned()],
        ..outer_machine("host-card".to_owned(), folder, kernel, LIMIT_S)
    };
    let outcome = Machine::start(&Qemu::obtain(&cache)?, spec)?.wait(&mut |_| {})?;
    let expected = Expected { programs: vec![CARD.to_owned()], gpus: 1, boots: 1 };
    let mut verdict = verdict::judge(&outcome, &expected);
    verdict.problems.extend(card.stop()?);
    let ok = verdict.problems.is_empty();
    eprintln!("nested {LOOK}: {}, {:.1} s", if ok { "ok" } else { "FAILED" }, outcome.wall.as_secs_f64());
    verdict.problems.iter().for_each(|problem| eprintln!("    {problem}"));
    Ok(Looked { problems: verdict.problems, results: verdict.results })
}
