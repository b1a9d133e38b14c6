//! Descriptions of the chips that the engine core can be. This is the only place where a chip's engines,
//! classes and host methods are put together.

mod gf100;
mod gh100;

use crate::engine::model::Model;
use crate::fifo::ramfc::AddressMasks;
use crate::pbdma::host::HostClass;
use gpuvmk_chip::{Engine, EngineSet};

pub(crate) use self::gf100::GF100;
pub(crate) use self::gh100::GH100;

/// A chip, as its engine core sees it. The format of its page tables is described apart: see
/// [`crate::mmu::walker::Walker`].
#[derive(Debug)]
pub(crate) struct Description {
    /// Number of channels of the FIFO.
    pub(crate) channels: u16,
    /// Number of PBDMAs. Each gets a thread.
    pub(crate) pbdmas: u8,
    /// The engines, with the models of what they execute.
    pub(crate) engines: &'static [EngineRow],
    /// Widths of virtual and USERD addresses.
    pub(crate) masks: AddressMasks,
    /// log2 of each page size, in ascending order.
    pub(crate) page_shifts: &'static [u8],
    /// Executes the methods of the host unit, which are not for an engine.
    pub(crate) host: &'static dyn HostClass,
}

/// An engine of a chip.
#[derive(Debug)]
pub(crate) struct EngineRow {
    /// The engine's name.
    pub(crate) engine: Engine,
    /// Makes the engine's model in its state after power-on.
    pub(crate) model: fn() -> Box<dyn Model>,
}

impl Description {
    /// The engines.
    pub(crate) fn engines(&self) -> EngineSet {
        self.engines.iter().map(|row| EngineSet::of(row.engine)).collect()
    }
}
