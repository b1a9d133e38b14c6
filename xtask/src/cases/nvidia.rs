//! A guest with NVIDIA's own driver.

use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::nvidia;
use gpuvmk_lab::rig::Topology;

use super::programs::NVIDIA;
use super::{Case, Guest};

/// A CUDA context takes some 600 MiB of a GPU with as many multiprocessors as this one: memory for threads.
const VRAM_MIB: u32 = 1024;
/// The guest's own memory, of which its initramfs takes 100 MiB.
const MEMORY_MIB: u32 = 1536;

/// The case.
pub fn case() -> Case {
    let guest = Guest {
        firmware: Firmware::NvidiaDriver,
        memory_mib: Some(MEMORY_MIB),
        vram_mib: VRAM_MIB,
        cpus: 2,
        // Its driver is no nouveau; the modules are loaded all the same.
        kernel_words: &["gpuvmk.bare=1"],
        // It shows pages of instance memory twice (docs/nvidia.md).
        bar3: "trapped",
        ..Guest::new("vm1", Chip::GH100, nvidia::SERIES, NVIDIA)
    };
    super::case("nvidia".into(), Topology::Mediated, vec![guest])
}
