//! Why a vGPU cannot be made of what was granted.

use std::io;

use gpuvmk_chip::Chip;
use gpuvmk_pci::config_space::BuildError;
use gpuvmk_pci::mapping::MapError;

/// Why a vGPU cannot be made of what was granted.
#[derive(Debug, thiserror::Error)]
pub enum VgpuError {
    /// The window is not the VRAM.
    #[error("The aggregator granted {granted:#x} bytes of VRAM but shows {shown:#x}")]
    Window {
        /// Size of the granted VRAM in bytes.
        granted: u64,
        /// Bytes of the window's files.
        shown: u64,
    },
    /// The window cannot be mapped.
    #[error("The VRAM that the aggregator granted cannot be mapped")]
    Map(#[from] MapError),
    /// There is no memory for BAR3.
    #[error("No memory for BAR3 can be had")]
    Bar3(#[source] io::Error),
    /// BAR3 cannot be memory, as it was configured.
    #[error(
        "BAR3 cannot be mapped (bar3 = \"direct\") on a GPU whose VRAM is slow to read: page tables in it are read from copies; \
         allowed is \"trapped\""
    )]
    Bar3Slow,
    /// The chip is known, and nothing here presents it.
    #[error("A {0} cannot be shown to a guest: this release has no registers for it")]
    NoFace(Chip),
    /// The register face cannot be built.
    #[error("The vGPU's configuration space cannot be built")]
    Face(#[from] BuildError),
}
