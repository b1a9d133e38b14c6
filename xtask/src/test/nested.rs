//! A real kernel's VFIO: the software GPU is a PCI device of an outer machine with an IOMMU, whose stock kernel gives it to gpuvmk. There it is
//! looked at by itself, and shared by inner guests.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::guest_build;
use gpuvmk_lab::initramfs;
use gpuvmk_lab::kernel::Role;
use gpuvmk_lab::machine::{Machine, MachineSpec};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::report::ProgramResult;
use gpuvmk_lab::verdict::{self, Expected};
use serde_json::{Value, json};

use super::Arguments;
use super::card::SoftCard;
use super::host_files;
use super::inner::{self, Nested, Task, outer_machine};

/// The cases that look at the card, by each of the kernel's interfaces, and the word that says which.
const LOOK: (&str, &str) = ("look", "group");
const CDEV: (&str, &str) = ("cdev", "cdev");
/// A stock guest on a card that is open by the newer one.
const CDEV_GUEST: &str = "cdev-guest";
/// Memory of the outer machine.
const OUTER_MIB: u32 = 1024;
/// How long everything may take.
const LIMIT_S: u64 = 180;

/// A micro guest and then a stock guest on the card, two at once, and one that has it to itself: with its BARs mapped, with all of its accesses to
/// registers recorded, and below QEMU, by its own VFIO and by ours.
fn tasks() -> [Task; 6] {
    let one = Task { card: true, micro: true, ..Task::new("one-guest", Chip::Gf100, &["probe", "copy"]) };
    let whole = Task { name: "whole-card".to_owned(), whole: true, micro: false, ..one.clone() };
    let traced = Task { name: "whole-card-traced".to_owned(), traced: true, micro: true, ..whole.clone() };
    let qemu = Task { name: "qemu-vfio-pci".to_owned(), front: "vfio-pci", ..whole.clone() };
    let ours = Task { name: "qemu-whole-card".to_owned(), front: "vfio-user", ..whole.clone() };
    [
        one.clone(),
        Task { name: "two-guests".to_owned(), vms: 2, micro: false, ..one },
        whole,
        traced,
        qemu,
        ours,
    ]
}

/// One stock guest where the outer kernel has iommufd: not in a usual run, as that kernel has to be built.
fn with_iommufd() -> Task {
    Task { card: true, own_kernel: true, ..Task::new(CDEV_GUEST, Chip::Gf100, &["probe", "copy"]) }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let start = Instant::now();
    let gpuvmk = arguments.gpuvmk()?;
    let look = |case| look_at_card(&gpuvmk, arguments, case);
    let play = |task: &Task| inner::run(task, &gpuvmk, &arguments.logs);
    let group = arguments.wants(LOOK.0).then(|| look(LOOK)).transpose()?;
    let cdev = arguments.names(CDEV.0).then(|| look(CDEV)).transpose()?;
    let wanted = tasks().into_iter().filter(|task| arguments.wants(&task.name));
    let guests = wanted.map(|task| play(&task)).collect::<Result<Vec<_>>>()?;
    let cdev_guest = arguments.names(CDEV_GUEST).then(|| play(&with_iommufd())).transpose()?;
    ensure!(
        group.is_some() || cdev.is_some() || cdev_guest.is_some() || !guests.is_empty(),
        "No such case: there are {}, {}; and, with a kernel that is built first, {}, {CDEV_GUEST}",
        LOOK.0,
        tasks().map(|task| task.name).join(", "),
        CDEV.0
    );
    let by_group = judged(group.as_ref(), &guests.iter().collect::<Vec<_>>());
    let by_cdev = judged(cdev.as_ref(), &cdev_guest.iter().collect::<Vec<_>>());
    let ok = by_group != Some(false) && by_cdev != Some(false);
    if arguments.json {
        let seen = || group.iter().chain(&cdev);
        let stray: Vec<_> = seen().map(|look| look.engines()["stray_dma_stopped"] == true).collect();
        // CAST: minutes, two digits.
        let minutes = (start.elapsed().as_secs_f64() / 0.6).round() / 100.0;
        println!(
            "{}",
            json!({
                "ok": ok, "group": by_group, "cdev": by_cdev,
                "copies_verified": seen().filter_map(|look| look.engines()["verified"].as_u64()).sum::<u64>(),
                "stray_dma_stopped": (!stray.is_empty()).then(|| !stray.contains(&false)),
                "cards": seen().map(Looked::to_json).collect::<Vec<_>>(),
                "guests": guests.iter().chain(&cdev_guest).map(Nested::to_json).collect::<Vec<_>>(), "minutes": minutes,
            })
        );
    }
    Ok(ok)
}

/// Whether all of an interface's cases are well; none if there was none.
fn judged(card: Option<&Looked>, guests: &[&Nested]) -> Option<bool> {
    let all = || card.map(Looked::ok).into_iter().chain(guests.iter().map(|guest| guest.ok()));
    (all().next().is_some()).then(|| all().all(|ok| ok))
}

/// What came of a look at the card.
struct Looked {
    problems: Vec<String>,
    results: Vec<ProgramResult>,
}

impl Looked {
    fn ok(&self) -> bool {
        self.problems.is_empty()
    }

    fn figures(&self) -> Value {
        self.results.first().map_or(Value::Null, |result| json!(result.figures))
    }

    fn engines(&self) -> Value {
        self.figures()["engines"].clone()
    }

    fn to_json(&self) -> Value {
        json!({ "ok": self.ok(), "problems": self.problems, "figures": self.figures() })
    }
}

fn look_at_card(gpuvmk: &Path, arguments: &Arguments, (case, interface): (&str, &str)) -> Result<Looked> {
    let cache = Cache::open()?;
    let init = guest_build::obtain(&cache)?;
    let kernel = inner::outer_kernel(&cache, interface == CDEV.1, Role::CardHost)?;
    let files = host_files::gpuvmk(gpuvmk)?;
    let (folder, label) = (arguments.logs.join(format!("nested-{case}")), format!("host-card-{case}"));
    let card = SoftCard::start(gpuvmk, &folder)?;
    let program = format!("card:interface={interface}");
    let spec = MachineSpec {
        initramfs: initramfs::obtain_with(&cache, &kernel, &init, &files, &label)?,
        memory_mib: OUTER_MIB,
        sockets: vec![card.socket()],
        iommu: true,
        programs: vec![program.clone()],
        ..outer_machine(label, folder, kernel, LIMIT_S)
    };
    let outcome = Machine::start(&Qemu::obtain(&cache)?, spec)?.wait(&mut |_| {})?;
    let expected = Expected { programs: vec![program], gpus: 1, boots: 1 };
    let mut verdict = verdict::judge(&outcome, &expected);
    verdict.problems.extend(card.stop()?);
    let ok = verdict.problems.is_empty();
    eprintln!("nested {case}: {}, {:.1} s", if ok { "ok" } else { "FAILED" }, outcome.wall.as_secs_f64());
    verdict.problems.iter().for_each(|problem| eprintln!("    {problem}"));
    Ok(Looked { problems: verdict.problems, results: verdict.results })
}
