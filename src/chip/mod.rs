//! What the hardware is, as data: registers with vendor names, fields, reset values and guest policy, MMU
//! formats, class methods, per-chip tables. No behaviour lives here.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod addr;
pub mod catalogue;
pub mod channel_event;
pub mod compute;
pub mod display;
mod engine;
pub mod gf100;
pub mod gh100;
pub mod gmmu;
pub mod gsp;
mod kinds;
pub mod methods;
pub mod mme;
pub mod nv;
pub mod qmd;
pub mod reduction;
pub mod register_doc;
pub mod register_index;
pub mod register_sets;
pub mod registers;
pub mod stream;
mod texture_clusters;

pub use catalogue::{Chip, Face, Subchannels, UnknownChip};
pub use engine::{Engine, EngineNumber, EngineSet, NoSuchEngine};
pub use kinds::StorageKinds;
pub use texture_clusters::{MOST_GPCS, TextureClusters};

/// Where a physical address points, in the words of NVIDIA's PTE and instance-block fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aperture {
    /// The GPU's own memory.
    Vram,
    /// System memory, snooped.
    SystemCoherent,
    /// System memory, not snooped.
    SystemNonCoherent,
}

/// A physical address as an engine names it: aperture and offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhysicalAddress {
    /// Which memory.
    pub aperture: Aperture,
    /// Byte offset (VRAM) or bus address (system memory).
    pub address: u64,
}

/// Whether an engine read or wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum AccessKind {
    /// Load.
    Read,
    /// Store.
    Write,
}

/// Why the MMU refused an access, in the numbering that GF100 to GM107 report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum FaultReason {
    /// The page table is absent.
    PageTableNotPresent = 0x00,
    /// The address is above the page table's range.
    PageTableTooShort = 0x01,
    /// The page is not valid.
    PageNotPresent = 0x02,
    /// The address is above the address space's limit.
    VmLimitExceeded = 0x03,
    /// The channel has no page directory.
    NoChannel = 0x04,
    /// The page is for privileged units only.
    PageSystemOnly = 0x05,
    /// A write met a read-only page.
    WriteToReadOnly = 0x06,
    /// The page belongs to an unsupported kind.
    CompressionFault = 0x0a,
    /// The page's aperture is unsupported, or its target does not answer.
    UnsupportedAperture = 0x0e,
}

impl FaultReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::PageTableNotPresent,
        Self::PageTableTooShort,
        Self::PageNotPresent,
        Self::VmLimitExceeded,
        Self::NoChannel,
        Self::PageSystemOnly,
        Self::WriteToReadOnly,
        Self::CompressionFault,
        Self::UnsupportedAperture,
    ];

    /// The reason that hardware reports as `code`.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u32 == code)
    }
}
