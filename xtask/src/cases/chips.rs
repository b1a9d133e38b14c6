//! Guests with chips whose GSP is that of a GH100 but for how it is booted, its firmware's version, page
//! tables and classes: what differs, on each generation.

use gpuvmk_chip::Face;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;

use super::programs::{
    CHIP, CHIP_WITHOUT_SHADERS, EVERYTHING_AND_VULKAN, KERNELS, SHORT, TOGETHER, VULKAN_WIDE,
};
use super::{Case, Guest, case};

/// Cases of all chips, some of them nightly's.
pub fn cases() -> Vec<Case> {
    let mut cases = of_each_generation();
    let further = further().into_iter().map(|chip| {
        let guest = Guest { vulkan: true, ..Guest::new("vm1", chip, KernelSeries::Newest, all_of(chip)) };
        let name = format!("{}-{}", chip.firmware_folder(), KernelSeries::Newest);
        Case { nightly: true, ..case(name, Topology::Mediated, vec![guest]) }
    });
    cases.extend(further);
    cases.extend(computing());
    cases
}

/// Chips that differ by numbers from one of their family that every change meets.
fn further() -> Vec<Chip> {
    let met = [Chip::TU106, Chip::TU116, Chip::GA106, Chip::AD104, Chip::GH100, Chip::GB203];
    Chip::with_face(Face::Gsp).filter(|chip| !met.contains(chip)).collect()
}

/// What shows that a chip works.
fn all_of(chip: Chip) -> &'static [&'static str] {
    if chip.computes() { CHIP } else { CHIP_WITHOUT_SHADERS }
}

/// Kernels of our own alone, on a chip of each kind of machine code.
fn computing() -> impl Iterator<Item = Case> {
    [Chip::GH100, Chip::AD104, Chip::GA106, Chip::TU106, Chip::TU116].into_iter().map(|chip| {
        let name = format!("{}-compute", chip.firmware_folder());
        let guest = Guest::new("vm1", chip, chip.usual_kernel(), KERNELS);
        Case { nightly: true, ..case(name, Topology::Mediated, vec![guest]) }
    })
}

fn of_each_generation() -> Vec<Case> {
    let (old, newest) = (KernelSeries::V6_12, KernelSeries::Newest);
    let single = |chip: Chip, kernel: KernelSeries, what: &str, guest: Guest| {
        case(format!("{}-{what}{kernel}", chip.firmware_folder()), Topology::Mediated, vec![guest])
    };
    let with_vulkan =
        |chip, kernel, programs| Guest { vulkan: true, ..Guest::new("vm1", chip, kernel, programs) };
    let mut cases = Vec::new();
    for (kernel, cpus) in [(old, 2), (newest, 1)] {
        let (chip, guest) = (Chip::AD104, with_vulkan(Chip::AD104, kernel, EVERYTHING_AND_VULKAN));
        cases.push(single(chip, kernel, "", Guest { cpus, ..guest }));
        let debian = Guest { firmware: Firmware::Debian(chip), ..Guest::new("vm1", chip, kernel, SHORT) };
        cases.push(single(chip, kernel, "debian-firmware-", debian));
    }
    let wide = single(Chip::AD104, old, "wide-", with_vulkan(Chip::AD104, old, VULKAN_WIDE));
    cases.push(Case { nightly: true, ..wide });
    let between = Guest::new("vm1", Chip::AD104, KernelSeries::V7_2, SHORT);
    cases.push(single(Chip::AD104, KernelSeries::V7_2, "", between));
    for (chip, kernel) in
        [(Chip::TU106, old), (Chip::TU116, newest), (Chip::GA106, old), (Chip::GB203, newest)]
    {
        cases.push(single(chip, kernel, "", with_vulkan(chip, kernel, all_of(chip))));
    }
    let at_once = [
        ("vm1", Chip::AD104, old),
        ("vm2", Chip::GH100, newest),
        ("vm3", Chip::GB203, newest),
        ("vm4", Chip::TU116, newest),
    ];
    let at_once = at_once.map(|(name, chip, kernel)| Guest::new(name, chip, kernel, TOGETHER));
    cases.push(case("four-generations".into(), Topology::Mediated, at_once.to_vec()));
    cases
}
