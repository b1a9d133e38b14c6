//! Properties and capacities of a physical GPU.

use std::time::Duration;

use super::ScrubMode;
use gpuvmk_chip::addr::{HostVram, Iova};
use gpuvmk_chip::nv::classes::Class;
use gpuvmk_chip::{Chip, EngineSet, TextureClusters};

/// Properties and capacities of a physical GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// The chip. Its storage kinds are those of pages.
    pub chip: Chip,
    /// The classes of which it makes channels and objects. They decide which chips its vGPUs can be.
    pub classes: Vec<Class>,
    /// First byte of VRAM that tenants may get.
    pub tenant_vram: HostVram,
    /// Bytes from there.
    pub tenant_vram_size: u64,
    /// Granule of partitions: a partition starts and ends at multiples of it.
    pub partition_granule: u64,
    /// Channels that tenants may get together.
    pub channels: u16,
    /// Engines that channels can use.
    pub engines: EngineSet,
    /// Size and alignment of a channel's USERD in bytes: a page on GF100, 512 on GH100.
    pub userd_granule: u64,
    /// True when CPU reads of VRAM are slow (uncached, over the bus): frequent readers should keep a copy.
    pub slow_vram_reads: bool,
    /// What the graphics engine has, where that is not all of its chip.
    pub texture_clusters: Option<TextureClusters>,
    /// Virtual addresses of an address space are below 2 to this.
    pub va_bits: u8,
    /// Page sizes of an address space, as log2.
    pub page_shifts: Vec<u8>,
    /// Bus addresses of system memory are below 2 to this.
    pub system_bits: u8,
    /// First bus address that tenants' memory may get; those below are the driver's own.
    pub first_iova: Iova,
    /// Address spaces at once, those for channels of the host's own among them.
    pub spaces: u32,
    /// Host memory for the page tables of all address spaces together, in bytes.
    pub table_memory: u64,
    /// How VRAM is zeroed.
    pub scrub: ScrubMode,
    /// About what it costs an engine to go from one VM's channel to another's.
    pub switch_time: Duration,
    /// The least that a turn has to be long for, where others wait: about what the driver's shortest step
    /// takes.
    pub shortest_turn: Duration,
    /// True when the process has to close the GPU once it is lost: the kernel waits for that before it lets
    /// go of a card that is taken out.
    pub close_when_lost: bool,
}

impl GpuInfo {
    /// The chips that its vGPUs can be.
    pub fn served(&self) -> impl Iterator<Item = Chip> {
        Chip::ALL.iter().copied().filter(|chip| chip.classes.missing(&self.classes).is_none())
    }
}
