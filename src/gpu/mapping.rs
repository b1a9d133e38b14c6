//! Address spaces and what they map, in host terms.

use gpuvmk_chip::addr::{GpuVa, HostVram, Iova};

/// A host address space (one shadow page-table tree).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceHandle(pub u32);

/// Pages of an address space, and the host memory of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SpaceUsage {
    /// Host memory that its tables take, in bytes.
    pub table_bytes: u64,
    /// Valid pages of all sizes.
    pub pages: u64,
}

/// The memory that a mapping points at, in host addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTarget {
    /// VRAM of the host.
    Vram(HostVram),
    /// System memory by bus address.
    System {
        /// Bus address of the first byte.
        iova: Iova,
        /// True for snooped accesses.
        coherent: bool,
    },
}

/// One run of equal pages to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMapping {
    /// First virtual address; a multiple of the page size.
    pub va: GpuVa,
    /// Number of pages; virtual and target addresses advance together.
    pub pages: u32,
    /// log2 of the page size: 12, 16 or 17 on Fermi.
    pub page_shift: u8,
    /// Where it points.
    pub target: HostTarget,
    /// True when stores fault.
    pub read_only: bool,
    /// Storage kind (0 is pitch-linear).
    pub kind: u8,
}

/// A run of virtual pages to unmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// First virtual address.
    pub va: GpuVa,
    /// Number of pages.
    pub pages: u32,
    /// log2 of the page size.
    pub page_shift: u8,
}
