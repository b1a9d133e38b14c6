//! The guest tests, as data: which kernel, whose GPU, what runs, what happens meanwhile.

mod chips;
mod display;
pub mod nvidia;
mod programs;

use gpuvmk_chip::Face;
use gpuvmk_lab::chip::{Chip, GuestChip};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;

use programs::{
    AT_WORK, BUSY, FAULTS, FILLED, FORGIVING_SLEEPERS, HANGS, NEIGHBOUR, PLUGGED, RECORDED, SCAN,
    SCAN_AND_FILL, SHORT, SLEEPERS, SLEEPS, VULKAN, WAITS,
};
pub use programs::{HANGS_IN_ALL, NIGHTS, PLUGS, everything};

/// A vGPU's memory in tests: small, so that evicting all of it does not take long.
const VRAM_MIB: u32 = 128;

/// One guest of a case.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Its name; its vGPUs are called after it.
    pub name: &'static str,
    /// Its kernel.
    pub kernel: KernelSeries,
    /// The firmware files that it has.
    pub firmware: Firmware,
    /// Its GPUs' chips.
    pub gpus: Vec<Chip>,
    /// Each GPU's memory.
    pub vram_mib: u32,
    /// Its own memory, where it is to be another than usual.
    pub memory_mib: Option<u32>,
    /// Its processors.
    pub cpus: u32,
    /// The programs it runs.
    pub programs: &'static [&'static str],
    /// nouveau's options.
    pub nouveau_options: &'static [&'static str],
    /// More words for its kernel's command line.
    pub kernel_words: &'static [&'static str],
    /// How often it reboots itself.
    pub reboots: u32,
    /// What runs on its socket after a disturbance, to show that it works again.
    pub afterwards: &'static [&'static str],
    /// Whether accesses to its GPUs' registers are recorded.
    pub trace: bool,
    /// How its mediated GPUs' instance memory is reached, as configuration files have it; empty: as usual.
    pub bar3: &'static str,
    /// The mode that its GPUs' monitors prefer, as configuration files have it; empty: they have no head.
    pub display: &'static str,
    /// Whether it has Mesa's Vulkan driver.
    pub vulkan: bool,
    /// Whether it has an IOMMU.
    pub iommu: bool,
}

impl Guest {
    /// A guest with one GPU, one processor and no options.
    pub fn new(
        name: &'static str,
        chip: Chip,
        kernel: KernelSeries,
        programs: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            kernel,
            firmware: Firmware::for_kernel(kernel),
            gpus: vec![chip],
            vram_mib: VRAM_MIB,
            memory_mib: None,
            cpus: 1,
            programs,
            nouveau_options: &[],
            kernel_words: &[],
            reboots: 0,
            afterwards: SHORT,
            trace: false,
            bar3: "",
            display: "",
            vulkan: false,
            iommu: false,
        }
    }
}

/// What is done to a running set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing: the guests run to their ends.
    None,
    /// QEMU of the first guest is killed at work; a new one connects to the same socket.
    QemuKilled,
    /// The first guest's device process is killed at work; the second guest must not notice.
    BackendKilled,
    /// The aggregator is killed at work and started again.
    AggregatorRestarted,
    /// The device processes are started before the aggregator.
    DevicesFirst,
    /// The first guest is recorded from its first program on.
    Recorded,
    /// The first guest hangs its engine; the others must not notice. The software GPU takes work off an
    /// engine between methods only.
    Hangs,
    /// The guest sleeps (S3) as often as [`NIGHTS`] says, and the host wakes it.
    Sleeps,
    /// The guest's GPU is unplugged and plugged in again, as often as [`PLUGS`] says.
    Plugged,
    /// Nothing; each guest's monitor is looked at when the guest says that there is something to see.
    Looked,
    /// The first guest has work that never ends, which an operator takes off; the others must not notice.
    OperatorResets,
}

/// One test.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name, unique.
    pub name: String,
    /// Left to `cargo xtask nightly`: a usual case shows the same with another kernel, chip or topology.
    pub nightly: bool,
    /// Native or mediated.
    pub topology: Topology,
    /// The guests, all at once.
    pub guests: Vec<Guest>,
    /// What happens meanwhile.
    pub disturbance: Disturbance,
}

impl Case {
    /// The kernels and firmware that its guests need.
    pub fn kinds(&self) -> impl Iterator<Item = (KernelSeries, Firmware)> + '_ {
        self.guests.iter().map(|guest| (guest.kernel, guest.firmware))
    }

    /// The series of the kernels for which NVIDIA's driver must have been fetched.
    pub fn nvidia_kernels(&self) -> impl Iterator<Item = KernelSeries> + '_ {
        let with_it = self.guests.iter().filter(|guest| guest.firmware == Firmware::NvidiaDriver);
        with_it.map(|guest| guest.kernel)
    }

    /// Whether NVIDIA's driver must have been fetched for it.
    pub fn needs_nvidia(&self) -> bool {
        self.nvidia_kernels().next().is_some()
    }

    /// Whether NVIDIA's firmware must have been fetched for it.
    pub fn needs_debian_firmware(&self) -> bool {
        self.guests.iter().any(|guest| matches!(guest.firmware, Firmware::Debian(_)))
    }
}

/// Cases that are not for every change, because a usual one shows the same but for the kernel, the chip or
/// the topology (docs/testing.md says which).
const NIGHTLY: &[&str] = &[
    "native-6.1",
    "native-6.12",
    "native-7.2",
    "native-intx",
    "native-reboot",
    "native-qemu-killed",
    "mediated-6.12",
    "mediated-7.2",
    "mediated-reboot",
    "bar3-direct-6.1",
    "bar3-direct-6.12",
    "bar3-direct-7.2",
    "sleepers-6.1",
    "sleepers-6.12",
    "sleepers-smp-6.1",
    "two-guests",
    "neighbour-faults",
    "neighbour-hangs-7.2",
    "recorded",
    "plugged",
    "gh100-plugged",
    "devices-before-aggregator",
    "ad104-7.2",
    "ad104-debian-firmware-6.12",
    "ad104-debian-firmware-newest",
    "gh100-7.2",
    "gh100-intx",
    "gh100-smp-4",
    "gh100-bar3-trapped",
    "gh100-vram-64m",
    "gh100-vram-64g",
    "gh100-vulkan",
    "gh100-two-guests",
    "gh100-two-vgpus-in-one-guest",
    "gh100-neighbour-faults",
    "gh100-neighbour-hangs",
    "gh100-devices-before-aggregator",
    "gh100-aggregator-restarted",
    "gh100-operator-resets",
    "gh100-mediated-qemu-killed",
    "gh100-backend-killed",
    "gh100-sleeps-7.2",
    "gf100-beside-gh100",
];

/// All cases, quick ones of each kind first.
pub fn all() -> Vec<Case> {
    let mut cases = fermi();
    cases.extend(hopper());
    cases.extend(chips::cases());
    cases.extend(display::cases());
    cases.extend(both());
    cases.extend(nvidia::cases());
    for case in &mut cases {
        case.nightly |= NIGHTLY.contains(&case.name.as_str());
    }
    cases
}

/// Guests with GF100s, native and mediated.
fn fermi() -> Vec<Case> {
    let mut cases = Vec::new();
    let chip = Chip::GF100;
    for topology in [Topology::Native, Topology::Mediated] {
        for kernel in KernelSeries::ALL {
            // 7.2 is what GH100s and benchmarks have. Here the newest kernel has its place; its own cases
            // stay, so that what changed between the two can be told.
            let programs = if kernel == KernelSeries::V7_2 { SHORT } else { everything(chip, kernel) };
            let guest = Guest { cpus: kernel.processors(), ..Guest::new("vm1", chip, kernel, programs) };
            cases.push(case(format!("{}-{kernel}", topology.name()), topology, vec![guest]));
        }
    }
    let kernel = chip.usual_kernel();
    let one = Guest::new("vm1", chip, kernel, SHORT);
    for topology in [Topology::Native, Topology::Mediated] {
        let intx = Guest { nouveau_options: &["config=NvMSI=0"], ..one.clone() };
        cases.push(case(format!("{}-intx", topology.name()), topology, vec![intx]));
        // A native GPU keeps its memory over a reset, as a card does.
        let programs = if topology == Topology::Mediated { SCAN_AND_FILL } else { SHORT };
        let reboot = Guest { reboots: 1, programs, ..one.clone() };
        cases.push(case(format!("{}-reboot", topology.name()), topology, vec![reboot]));
    }

    let mediated = Topology::Mediated;
    for kernel in KernelSeries::NUMBERED {
        let direct = Guest { bar3: "direct", ..Guest::new("vm1", chip, kernel, SHORT) };
        cases.push(case(format!("bar3-direct-{kernel}"), mediated, vec![direct]));
    }
    for kernel in [KernelSeries::V6_1, KernelSeries::V6_12, KernelSeries::Newest] {
        let bar3 = quick_to_power_off(chip, kernel);
        let sleepers = Guest { cpus: kernel.processors(), bar3, ..Guest::new("vm1", chip, kernel, SLEEPERS) };
        cases.push(case(format!("sleepers-{kernel}"), mediated, vec![sleepers]));
        if kernel.processors() == 1 {
            let forgiving = Guest { cpus: 2, ..Guest::new("vm1", chip, kernel, FORGIVING_SLEEPERS) };
            cases.push(case(format!("sleepers-smp-{kernel}"), mediated, vec![forgiving]));
        }
    }
    // Its driver's pages are mapped one by one, and taken away in any order.
    let iommu = Guest { iommu: true, ..one.clone() };
    cases.push(case("guest-iommu".into(), mediated, vec![iommu]));
    let two_gpus = Guest { gpus: vec![chip; 2], ..one };
    cases.push(case("two-vgpus-in-one-guest".into(), mediated, vec![two_gpus]));
    let pair = [KernelSeries::V6_1, KernelSeries::V7_2];
    cases.push(case("two-guests-mixed".into(), mediated, guests([(chip, BUSY); 2], pair)));
    cases.extend(several("", chip, kernel));
    let hangs = guests([(chip, HANGS), (chip, NEIGHBOUR)], [KernelSeries::V7_2, kernel]);
    cases.push(Case {
        disturbance: Disturbance::Hangs,
        ..case("neighbour-hangs-7.2".into(), mediated, hangs)
    });
    let victim = Guest::new("vm1", chip, kernel, AT_WORK);
    cases.push(Case {
        disturbance: Disturbance::QemuKilled,
        ..case("native-qemu-killed".into(), Topology::Native, vec![victim])
    });
    cases
}

/// Guests with GH100s, all mediated.
fn hopper() -> Vec<Case> {
    let (chip, mediated) = (Chip::GH100, Topology::Mediated);
    let kernel = chip.usual_kernel();
    let full = Guest { cpus: 2, ..Guest::new("vm1", chip, kernel, everything(chip, kernel)) };
    let one = Guest::new("vm1", chip, kernel, SHORT);
    let single = |name: &str, guest: Guest| case(format!("gh100-{name}"), mediated, vec![guest]);
    let newest = KernelSeries::Newest;
    let mut cases = vec![
        single(kernel.name(), full.clone()),
        single(newest.name(), Guest { cpus: 2, ..Guest::new("vm1", chip, newest, everything(chip, newest)) }),
        single("bar3-trapped", Guest { bar3: "trapped", ..one.clone() }),
        single("smp-4", Guest { cpus: 4, programs: BUSY, ..full.clone() }),
        single("sleepers", Guest { cpus: 2, programs: SLEEPERS, ..one.clone() }),
        single("intx", Guest { nouveau_options: &["config=NvMSI=0"], ..one.clone() }),
        single("reboot", Guest { reboots: 1, programs: SCAN_AND_FILL, ..one.clone() }),
        single("two-vgpus-in-one-guest", Guest { gpus: vec![chip; 2], ..one.clone() }),
        single("vram-64m", Guest { vram_mib: 64, programs: BUSY, ..full.clone() }),
        single("vram-64g", Guest { vram_mib: 64 << 10, programs: SHORT, ..full }),
        single("vulkan", Guest { vulkan: true, programs: VULKAN, ..one.clone() }),
        single("debian-firmware", Guest { firmware: Firmware::Debian(chip), ..one }),
    ];
    cases.extend(several("gh100-", chip, kernel));
    cases.extend([kernel, newest].map(|kernel| sleeps(format!("gh100-sleeps-{kernel}"), chip, kernel)));
    cases
}

/// A guest that sleeps, and so has its GPU reset.
fn sleeps(name: String, chip: Chip, kernel: KernelSeries) -> Case {
    let guest = Guest::new("vm1", chip, kernel, SLEEPS);
    Case { disturbance: Disturbance::Sleeps, ..case(name, Topology::Mediated, vec![guest]) }
}

/// Guests of both chips on one machine.
fn both() -> Vec<Case> {
    let chips = [Chip::GF100, Chip::GH100];
    let kernels = chips.map(GuestChip::usual_kernel);
    let one_each = guests(chips.map(|chip| (chip, BUSY)), kernels);
    let in_one = Guest { gpus: chips.to_vec(), ..Guest::new("vm1", Chip::GH100, KernelSeries::V7_2, SHORT) };
    vec![
        case("gf100-beside-gh100".into(), Topology::Mediated, one_each),
        case("both-chips-in-one-guest".into(), Topology::Mediated, vec![in_one]),
    ]
}

/// What concerns several tenants of one GPU, and the ends of processes.
fn several(prefix: &str, chip: Chip, kernel: KernelSeries) -> Vec<Case> {
    let mediated = Topology::Mediated;
    let named = |name: &str, guests| case(format!("{prefix}{name}"), mediated, guests);
    let pair = |first, second| guests([(chip, first), (chip, second)], [kernel; 2]);
    let alone = |programs| vec![Guest::new("vm1", chip, kernel, programs)];
    let with = |disturbance, case| Case { disturbance, ..case };
    let filled = Guest { afterwards: SCAN, ..Guest::new("vm1", chip, kernel, FILLED) };
    let beside_filled = vec![filled.clone(), Guest::new("vm2", chip, kernel, NEIGHBOUR)];
    vec![
        named("two-guests", pair(BUSY, BUSY)),
        named("neighbour-faults", pair(FAULTS, NEIGHBOUR)),
        with(Disturbance::Hangs, named("neighbour-hangs", pair(HANGS, NEIGHBOUR))),
        with(Disturbance::OperatorResets, named("operator-resets", pair(WAITS, NEIGHBOUR))),
        with(Disturbance::QemuKilled, named("mediated-qemu-killed", vec![filled])),
        with(Disturbance::BackendKilled, named("backend-killed", beside_filled)),
        with(Disturbance::Recorded, named("recorded", alone(RECORDED))),
        with(Disturbance::Plugged, named("plugged", alone(PLUGGED))),
        with(Disturbance::DevicesFirst, named("devices-before-aggregator", alone(SHORT))),
        with(Disturbance::AggregatorRestarted, named("aggregator-restarted", alone(AT_WORK))),
    ]
}

/// Two guests with these chips, programs and kernels.
fn guests(work: [(Chip, &'static [&'static str]); 2], kernels: [KernelSeries; 2]) -> Vec<Guest> {
    ["vm1", "vm2"]
        .into_iter()
        .zip(work)
        .zip(kernels)
        .map(|((name, (chip, programs)), kernel)| {
            let bar3 = quick_to_power_off(chip, kernel);
            Guest { bar3, ..Guest::new(name, chip, kernel, programs) }
        })
        .collect()
}

/// How instance memory is reached, so that a guest powers off quickly: Linux 7.2 and later read all of a
/// GF100's then, which takes 20 s where it is trapped.
fn quick_to_power_off(chip: Chip, kernel: KernelSeries) -> &'static str {
    let reads = matches!(kernel, KernelSeries::V7_2 | KernelSeries::Newest);
    if chip.face == Face::Registers && reads { "direct" } else { "" }
}

/// What runs on a victim's socket after a disturbance, to show that it works again.
pub fn afterwards(victim: &Guest) -> Guest {
    Guest { programs: victim.afterwards, ..victim.clone() }
}

fn case(name: String, topology: Topology, guests: Vec<Guest>) -> Case {
    Case { name, nightly: false, topology, guests, disturbance: Disturbance::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique() {
        let mut names: Vec<_> = all().into_iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn what_is_left_to_nightly_exists() {
        let cases = all();
        for name in NIGHTLY {
            assert!(cases.iter().any(|case| case.name == *name), "{name} is no case's name");
        }
    }

    #[test]
    fn every_chip_has_a_case() {
        let cases = all();
        for &chip in Chip::ALL {
            let of = cases.iter().filter(|case| case.guests.iter().any(|guest| guest.gpus == [chip]));
            assert!(of.count() > 0, "{chip}");
        }
    }

    #[test]
    fn every_change_meets_every_program_on_every_kernel_and_on_both_topologies() {
        // 6.12 has its place on an AD104, below.
        for kernel in [KernelSeries::V6_1, KernelSeries::Newest] {
            assert!(covered(Topology::Mediated, kernel, Chip::GF100), "{kernel}");
        }
        assert!(covered(Topology::Native, KernelSeries::Newest, Chip::GF100));
        assert!(covered(Topology::Mediated, KernelSeries::Newest, Chip::GH100));
        for kernel in [KernelSeries::V6_12, KernelSeries::Newest] {
            assert!(covered(Topology::Mediated, kernel, Chip::AD104), "{kernel}");
        }
    }

    #[test]
    fn every_change_meets_vulkan_on_a_chip_of_each_generation_that_mesa_shows() {
        for chip in [Chip::TU106, Chip::TU116, Chip::GA106, Chip::AD104, Chip::GB203] {
            let usual = all().into_iter().filter(|case| !case.nightly);
            let vulkan = usual.flat_map(|case| case.guests).any(|guest| guest.vulkan && guest.gpus == [chip]);
            assert!(vulkan, "{chip}");
        }
    }

    fn covered(topology: Topology, kernel: KernelSeries, chip: Chip) -> bool {
        let usual = all().into_iter().filter(|case| case.topology == topology && !case.nightly);
        usual.flat_map(|case| case.guests).any(|guest| {
            let all = everything(chip, kernel).iter().all(|program| guest.programs.contains(program));
            guest.kernel == kernel && guest.gpus == [chip] && all
        })
    }

    #[test]
    fn every_guest_has_a_kernel_that_drives_its_chips() {
        for case in all() {
            // NVIDIA's own driver has other kernels than nouveau.
            for guest in case.guests.iter().filter(|guest| guest.firmware != Firmware::NvidiaDriver) {
                for chip in &guest.gpus {
                    assert!(chip.check_kernel(guest.kernel).is_ok(), "{}", case.name);
                }
            }
        }
    }
}
