//! A guest with NVIDIA's own driver.

use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::nvidia;
use gpuvmk_lab::rig::Topology;

use super::programs::NVIDIA;
use super::{Case, Guest};

/// The case.
pub fn case() -> Case {
    let guest = Guest {
        firmware: Firmware::NvidiaDriver,
        memory_mib: Some(nvidia::MEMORY_MIB),
        vram_mib: nvidia::VRAM_MIB,
        cpus: 2,
        kernel_words: nvidia::KERNEL_WORDS,
        bar3: nvidia::BAR3,
        ..Guest::new("vm1", Chip::GH100, nvidia::SERIES, NVIDIA)
    };
    super::case("nvidia".into(), Topology::Mediated, vec![guest])
}
