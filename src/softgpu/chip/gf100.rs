//! GF100.

use super::Description;
use crate::class::copy::Copy;
use crate::class::graphics::Graphics;
use crate::fifo::ramfc::{AddressMasks, NARROW};
use crate::pbdma::host::fermi::Fermi;
use gpuvmk_chip::{Engine, gf100};

/// The chip.
pub(crate) static GF100: Description = Description {
    channels: gf100::CHANNELS,
    pbdmas: gf100::PBDMAS,
    engines: &[Engine::Graphics, Engine::Copy(0), Engine::Copy(1)],
    masks: AddressMasks { va_max: gf100::mmu::VA_MAX, userd: NARROW & !(gf100::ramin::USERD_SIZE - 1) },
    page_shifts: &[12, 16, 17],
    host: &Fermi,
    model: |engine| match engine {
        Engine::Graphics => Box::<Graphics>::default(),
        Engine::Copy(_) => Box::<Copy>::default(),
    },
};
