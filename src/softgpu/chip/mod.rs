//! What distinguishes the chips whose engine core this is.

use crate::class::copy::Copy;
use crate::class::graphics::Graphics;
use crate::class::hopper_copy::HopperCopy;
use crate::class::hopper_graphics::HopperGraphics;
use crate::engine::model::Model;
use crate::pbdma::host::{HostClass, fermi::Fermi, hopper::Hopper};
use gpuvmk_chip::{Engine, gf100, gh100};

/// A chip, as its engine core sees it. How page tables are walked is not part of it: see
/// [`crate::mmu::walker::Walker`].
#[derive(Debug)]
pub(crate) struct Description {
    /// Channels of the FIFO.
    pub(crate) channels: u16,
    /// PBDMA units; each is a thread.
    pub(crate) pbdmas: u8,
    /// Engines; their position in [`crate::fifo::engine_index`]'s order.
    pub(crate) engines: &'static [Engine],
    /// Highest virtual address.
    pub(crate) va_max: u64,
    /// Address bits of a USERD.
    pub(crate) userd_mask: u64,
    /// log2 of the page sizes, ascending.
    pub(crate) page_shifts: &'static [u8],
    /// The host unit's methods.
    pub(crate) host: &'static dyn HostClass,
    /// What an engine is.
    pub(crate) model: fn(Engine) -> Box<dyn Model>,
}

/// GF100.
pub(crate) static GF100: Description = Description {
    channels: gf100::CHANNELS,
    pbdmas: gf100::PBDMAS,
    engines: &[Engine::Graphics, Engine::Copy(0), Engine::Copy(1)],
    va_max: gf100::mmu::VA_MAX,
    userd_mask: 0xff_ffff_f000,
    page_shifts: &[12, 16, 17],
    host: &Fermi,
    model: |engine| match engine {
        Engine::Graphics => Box::<Graphics>::default(),
        Engine::Copy(_) => Box::<Copy>::default(),
    },
};

/// Channels that the executor has: a bound for its tables, not hardware's (which has 2048 a runlist).
const GH100_CHANNELS: u16 = 512;

/// GH100, as far as an executor needs it. One PBDMA an engine, so that all engines can be busy at once.
pub(crate) static GH100: Description = Description {
    channels: GH100_CHANNELS,
    pbdmas: 4,
    engines: &[Engine::Graphics, Engine::Copy(0), Engine::Copy(1), Engine::Copy(2)],
    va_max: gh100::mmu::VA_MAX,
    userd_mask: 0xff_ffff_fe00,
    page_shifts: &[12, 16, 21, 29],
    host: &Hopper,
    model: |engine| match engine {
        Engine::Graphics => Box::<HopperGraphics>::default(),
        Engine::Copy(number) => Box::new(HopperCopy::new(number)),
    },
};

impl Description {
    /// True when the chip has the engine.
    pub(crate) fn has(&self, engine: Engine) -> bool {
        self.engines.contains(&engine)
    }
}
