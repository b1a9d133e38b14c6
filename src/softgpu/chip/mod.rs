//! What distinguishes the chips whose engine core this is: a description of each, and the only place where
//! engines, classes and the host unit's methods are put together.

mod gf100;
mod gh100;

use crate::engine::model::Model;
use crate::fifo::ramfc::AddressMasks;
use crate::pbdma::host::HostClass;
use gpuvmk_chip::{Engine, EngineSet};

pub(crate) use self::gf100::GF100;
pub(crate) use self::gh100::GH100;

/// A chip, as its engine core sees it. How page tables are walked is not part of it: see
/// [`crate::mmu::walker::Walker`].
#[derive(Debug)]
pub(crate) struct Description {
    /// Channels of the FIFO.
    pub(crate) channels: u16,
    /// PBDMA units; each is a thread.
    pub(crate) pbdmas: u8,
    /// Engines, and what each is.
    pub(crate) engines: &'static [EngineRow],
    /// How wide addresses are.
    pub(crate) masks: AddressMasks,
    /// log2 of the page sizes, ascending.
    pub(crate) page_shifts: &'static [u8],
    /// The host unit's methods.
    pub(crate) host: &'static dyn HostClass,
}

/// An engine of a chip.
#[derive(Debug)]
pub(crate) struct EngineRow {
    /// Which it is.
    pub(crate) engine: Engine,
    /// Makes its model, as after power-on.
    pub(crate) model: fn() -> Box<dyn Model>,
}

impl Description {
    /// The engines.
    pub(crate) fn engines(&self) -> EngineSet {
        self.engines.iter().map(|row| EngineSet::of(row.engine)).collect()
    }
}
