//! Describes the GH100 to the engine core: its FIFO, address widths, engines and host methods.

use super::{Description, EngineRow};
use crate::class::turing_copy::TuringCopy;
use crate::class::turing_graphics::TuringGraphics;
use crate::fifo::ramfc::{AddressMasks, NARROW};
use crate::pbdma::host::hopper::Hopper;
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::{Engine, gh100};

/// Number of channels. It bounds the executor's tables; hardware has 2048 a runlist.
const GH100_CHANNELS: u16 = 512;

/// The description of a GH100. It has one PBDMA for each engine, so that all engines can be busy at once.
pub(crate) static GH100: Description = Description {
    channels: GH100_CHANNELS,
    pbdmas: 4,
    engines: &[
        EngineRow { engine: Engine::Graphics, model: || Box::<TuringGraphics>::default() },
        EngineRow { engine: Engine::COPY0, model: || Box::new(TuringCopy::new(0)) },
        EngineRow { engine: Engine::COPY1, model: || Box::new(TuringCopy::new(1)) },
        EngineRow { engine: Engine::COPY2, model: || Box::new(TuringCopy::new(2)) },
    ],
    masks: AddressMasks { va_max: Gmmu::V3.va_max(), userd: NARROW & !(gh100::userd::USERD_SIZE - 1) },
    page_shifts: &[12, 16, 21, 29],
    host: &Hopper,
};
