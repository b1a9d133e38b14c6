//! The register face of a GF100: what a driver sees of the chip, whatever executes behind it.
//!
//! [`Gf100Function`] is a PCI function over an [`EngineBackend`]: the software GPU's engine core, or the
//! mediator of a guest's vGPU. Each unit is a pure model in its own file; a register access returns its
//! consequences as [`effect`] values, which the function carries out.
//!
//! Not modelled: display, video engines, fuses and clocks beyond their start-up values, GPC broadcast writes
//! (a broadcast range and the GPCs' own registers are separate scratch), performance counters.

mod alarm;
pub mod effect;
mod face;
mod falcon;
mod fecs;
mod function;
mod idle;
mod pbus;
mod pce;
mod pfb;
mod pfifo;
mod pgraph;
mod pmc;
mod pmu;
mod registers;
#[cfg(test)]
mod tests;

pub use crate::FaceCounters;
pub use function::{Gf100Config, Gf100Function, Gf100State};

/// The states of the units, parts of [`Gf100State`].
pub mod state {
    pub use super::falcon::FalconState;
    pub use super::fecs::ContextSwitchState;
    pub use super::idle::IdleCounterState;
    pub use super::pbus::PbusState;
    pub use super::pfb::PfbState;
    pub use super::pfifo::PfifoState;
    pub use super::pfifo::fault::{FaultsState, Record};
    pub use super::pfifo::pbdma::PbdmaState;
    pub use super::pgraph::PgraphState;
    pub use super::pmc::PmcState;
    pub use super::pmu::PmuState;
    pub use super::registers::RegistersState;
    pub use crate::interrupt::InterruptOutputState;
    pub use crate::ptimer::PtimerState;
}

use gpuvmk_chip::gf100::regs;
use gpuvmk_chip::registers::Reg;

#[cfg(doc)]
use gpuvmk_backend::EngineBackend;

/// Memory sizes of a falcon, from the reset value of its HW_CONFIG register.
fn falcon_config(reg: Reg) -> u32 {
    regs::definition(reg).map_or(0, |definition| definition.reset)
}
