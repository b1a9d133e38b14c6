//! Guests with NVIDIA's own driver.

use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::nvidia;
use gpuvmk_lab::rig::Topology;

use super::programs::{NVIDIA, NVIDIA_535, everything};
use super::{Case, Guest};

/// Two programs at once have a context each.
const VRAM_MIB: u32 = 2 * nvidia::VRAM_MIB;

/// Of a guest whose instance memory is trapped: each program's boot of the GPU takes seconds.
const TRAPPED: &[&str] = &["smi", "cuda:checks=copy,sums,streams"];

/// The cases: such a guest alone, one with Debian 12's version of the driver, and two at once on a GPU that a
/// guest with nouveau on another chip uses, too. One of those two has its instance memory trapped.
pub fn cases() -> [Case; 3] {
    let (chip, kernel) = (Chip::AD104, KernelSeries::V7_2);
    let nouveau = Guest { cpus: 2, ..Guest::new("vm3", chip, kernel, everything(chip, kernel)) };
    let beside = vec![guest("vm1"), Guest { bar3: "trapped", ..with("vm2", TRAPPED) }, nouveau];
    [
        super::case("nvidia".into(), Topology::Mediated, vec![guest("vm1")]),
        super::case("nvidia-535".into(), Topology::Mediated, vec![debian_12("vm1")]),
        super::case("nvidia-beside".into(), Topology::Mediated, beside),
    ]
}

fn guest(name: &'static str) -> Guest {
    with(name, NVIDIA)
}

/// The same with 535.261.03.
fn debian_12(name: &'static str) -> Guest {
    Guest { kernel: KernelSeries::V6_1, ..with(name, NVIDIA_535) }
}

/// Such a guest, with these programs.
pub fn with(name: &'static str, programs: &'static [&'static str]) -> Guest {
    Guest {
        firmware: Firmware::NvidiaDriver,
        memory_mib: Some(nvidia::MEMORY_MIB),
        vram_mib: VRAM_MIB,
        cpus: 2,
        kernel_words: nvidia::KERNEL_WORDS,
        ..Guest::new(name, Chip::GH100, nvidia::SERIES, programs)
    }
}
