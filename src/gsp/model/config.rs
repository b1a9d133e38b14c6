//! What the virtual GSP must know of its function.

use super::objects::ObjectLimits;
use crate::abi::values::PciIdentity;
use crate::hal::{Display, GspHal};
use gpuvmk_chip::catalogue::{ChipClasses, DisplayClasses};
use gpuvmk_chip::{EngineSet, TextureClusters};

/// What the virtual GSP must know of its function.
#[derive(Clone, Copy, Debug)]
pub struct GspConfig {
    /// The chip.
    pub hal: &'static GspHal,
    /// Bytes of VRAM.
    pub vram: u64,
    /// Engines that the driver is told of.
    pub engines: EngineSet,
    /// Channel slots of the back.
    pub channels: u16,
    /// What the graphics engine has; none: all that the chip has.
    pub graphics: Option<TextureClusters>,
    /// How many objects the driver may have.
    pub objects: ObjectLimits,
    /// What it is on the bus.
    pub pci: PciIdentity,
    /// Its UUID, which tells it from every other GPU.
    pub uuid: [u8; 16],
    /// Its display engine has a head, where its chip can have one.
    pub has_head: bool,
}

impl GspConfig {
    /// What the graphics engine has.
    pub(super) fn graphics(&self) -> TextureClusters {
        self.graphics.unwrap_or(self.hal.graphics)
    }

    /// The classes of the display engine, where that has a head.
    pub(super) fn heads(&self) -> Option<DisplayClasses> {
        self.hal.classes().heads.filter(|_| self.has_head)
    }

    /// The classes that its driver may use.
    pub(super) fn classes(&self) -> ChipClasses {
        let all = *self.hal.classes();
        let heads = self.heads();
        ChipClasses { display: heads.map_or(all.display, |heads| Some(heads.root)), heads, ..all }
    }

    /// The display engine's vectors, where its driver is told of one.
    pub(super) fn display(&self) -> Option<Display> {
        self.hal.display.or_else(|| self.heads().map(|_| self.hal.display_vectors))
    }

    /// VRAM address of BAR1's top page table, which the driver fills in itself.
    pub(super) const fn bar1_root(&self) -> u64 {
        // The top MiB of VRAM is not given to the driver as memory.
        self.vram.saturating_sub(1 << 20)
    }

    /// VRAM address by which the driver names BAR2's page directory in TLB invalidations.
    pub(super) const fn bar2_root(&self) -> u64 {
        self.bar1_root().saturating_add(0x1000)
    }
}
