//! A real kernel's VFIO: the software GPU is a PCI device of an outer machine with an IOMMU, whose stock
//! kernel gives it to gpuvmk. There it is looked at by itself, and shared by inner guests.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::guest_build;
use gpuvmk_lab::initramfs;
use gpuvmk_lab::kernel::Role;
use gpuvmk_lab::machine::{Beside, Machine, MachineSpec};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::report::ProgramResult;
use gpuvmk_lab::verdict::{self, Expected};
use serde_json::{Value, json};

use super::Arguments;
use super::card::SoftCard;
use super::host_files;
use super::inner::{self, Nested, Task, outer_machine};

/// The case that looks at the card by the kernel's newer interface.
const CDEV: &str = "cdev";
/// A stock guest on a card that is open by the newer one.
const CDEV_GUEST: &str = "cdev-guest";
/// Memory of the outer machine.
const OUTER_MIB: u32 = 1024;
/// How long everything may take.
const LIMIT_S: u64 = 180;

/// A micro guest and then a stock guest on the card, two at once, and one that has it to itself: with its
/// BARs mapped, with all of its accesses to registers recorded, and below QEMU, by its own VFIO and by ours.
fn tasks() -> [Task; 6] {
    let one = Task { card: true, micro: true, ..Task::new("one-guest", Chip::GF100, &["probe", "copy"]) };
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

/// A machine in which a program has to do with the card itself.
#[derive(Debug)]
struct Scene {
    name: &'static str,
    program: &'static str,
    role: Role,
    own_kernel: bool,
    iommu: bool,
    beside: Beside,
}

/// The card as a machine gives it away: by itself; from nouveau, with a second function, until it is taken
/// out; and two that cannot be given away.
const SCENES: [Scene; 4] = [
    LOOK,
    Scene { name: "takeover", program: "takeover", role: Role::CardOwner, beside: Beside::Function, ..LOOK },
    Scene {
        name: "shared-group",
        program: "takeover:scene=neighbour",
        role: Role::CardOwner,
        beside: Beside::Neighbour,
        ..LOOK
    },
    Scene { name: "no-iommu", program: "takeover:scene=no-iommu", iommu: false, ..LOOK },
];

const LOOK: Scene = Scene {
    name: "look",
    program: "card:interface=group",
    role: Role::CardHost,
    own_kernel: false,
    iommu: true,
    beside: Beside::Nothing,
};

/// The first of them where the outer kernel has iommufd.
const LOOK_BY_CDEV: Scene = Scene { name: CDEV, program: "card:interface=cdev", own_kernel: true, ..LOOK };

/// One stock guest where the outer kernel has iommufd: not in a usual run, as that kernel has to be built.
fn with_iommufd() -> Task {
    Task { card: true, own_kernel: true, ..Task::new(CDEV_GUEST, Chip::GF100, &["probe", "copy"]) }
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let start = Instant::now();
    let gpuvmk = arguments.gpuvmk()?;
    let look = |scene| look_at_card(&gpuvmk, arguments, scene);
    let play = |task: &Task| inner::run(task, &gpuvmk, &arguments.logs);
    let scenes = SCENES.iter().filter(|scene| arguments.wants(scene.name));
    let group = scenes.map(look).collect::<Result<Vec<_>>>()?;
    let cdev = arguments.names(CDEV).then(|| look(&LOOK_BY_CDEV)).transpose()?;
    let wanted = tasks().into_iter().filter(|task| arguments.wants(&task.name));
    let guests = wanted.map(|task| play(&task)).collect::<Result<Vec<_>>>()?;
    let cdev_guest = arguments.names(CDEV_GUEST).then(|| play(&with_iommufd())).transpose()?;
    ensure!(
        !group.is_empty() || cdev.is_some() || cdev_guest.is_some() || !guests.is_empty(),
        "No such case: there are {}, {}; and, with a kernel that is built first, {}, {CDEV_GUEST}",
        SCENES.map(|scene| scene.name).join(", "),
        tasks().map(|task| task.name).join(", "),
        CDEV
    );
    let by_group = judged(&group, &guests);
    let by_cdev = judged(cdev.as_slice(), cdev_guest.as_slice());
    let ok = by_group != Some(false) && by_cdev != Some(false);
    if arguments.json {
        let seen = || group.iter().chain(&cdev);
        let tried = seen().map(Looked::engines).filter(|engines| !engines.is_null());
        let stray: Vec<_> = tried.map(|engines| engines["stray_dma_stopped"] == true).collect();
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
fn judged(scenes: &[Looked], guests: &[Nested]) -> Option<bool> {
    let all = || scenes.iter().map(Looked::ok).chain(guests.iter().map(Nested::ok));
    (all().next().is_some()).then(|| all().all(|ok| ok))
}

/// What came of a look at the card.
struct Looked {
    name: &'static str,
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
        json!({ "name": self.name, "ok": self.ok(), "problems": self.problems, "figures": self.figures() })
    }
}

fn look_at_card(gpuvmk: &Path, arguments: &Arguments, scene: &Scene) -> Result<Looked> {
    let Scene { name, iommu, beside, .. } = *scene;
    let cache = Cache::open()?;
    let init = guest_build::obtain(&cache)?;
    let kernel = inner::outer_kernel(&cache, scene.own_kernel, scene.role)?;
    let files = host_files::gpuvmk(gpuvmk)?;
    let (folder, label) = (arguments.logs.join(format!("nested-{name}")), format!("host-card-{name}"));
    let card = SoftCard::start(gpuvmk, &folder)?;
    let program = scene.program.to_owned();
    let spec = MachineSpec {
        initramfs: initramfs::obtain_with(&cache, &kernel, &init, &files, &label)?,
        memory_mib: OUTER_MIB,
        sockets: vec![card.socket()],
        iommu,
        beside,
        programs: vec![program.clone()],
        ..outer_machine(label, folder, kernel, LIMIT_S)
    };
    let outcome = Machine::start(&Qemu::obtain(&cache)?, spec)?.wait(&mut |_| {})?;
    let expected = Expected { programs: vec![program], gpus: 1, boots: 1 };
    let mut verdict = verdict::judge(&outcome, &expected);
    verdict.problems.extend(card.stop()?);
    let ok = verdict.problems.is_empty();
    eprintln!("nested {name}: {}, {:.1} s", if ok { "ok" } else { "FAILED" }, outcome.wall.as_secs_f64());
    verdict.problems.iter().for_each(|problem| eprintln!("    {problem}"));
    Ok(Looked { name, problems: verdict.problems, results: verdict.results })
}
