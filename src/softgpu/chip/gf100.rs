//! Describes the GF100 to the engine core: its FIFO, address widths, engines and host methods.

use super::{Description, EngineRow};
use crate::class::copy::Copy;
use crate::class::graphics::Graphics;
use crate::fifo::ramfc::{AddressMasks, NARROW};
use crate::pbdma::host::fermi::Fermi;
use gpuvmk_chip::{Engine, gf100};

/// The description of a GF100.
pub(crate) static GF100: Description = Description {
    channels: gf100::CHANNELS,
    pbdmas: gf100::PBDMAS,
    engines: &[
        EngineRow { engine: Engine::Graphics, model: || Box::<Graphics>::default() },
        EngineRow { engine: Engine::COPY0, model: || Box::<Copy>::default() },
        EngineRow { engine: Engine::COPY1, model: || Box::<Copy>::default() },
    ],
    masks: AddressMasks { va_max: gf100::mmu::VA_MAX, userd: NARROW & !(gf100::ramin::USERD_SIZE - 1) },
    page_shifts: &[12, 16, 17],
    host: &Fermi,
};
