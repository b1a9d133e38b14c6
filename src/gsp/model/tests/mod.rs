//! A model driver against the virtual GSP: it encodes its queue elements by hand, as nouveau does, over guest
//! memory in scattered pages and a back that records what it is asked.

#![allow(clippy::cast_possible_truncation, reason = "the sizes and numbers of these tests are small")]

mod boot;
mod channels;
mod display;
mod driver;
mod events;
mod heads;
mod hostile;
mod memory_system;
mod nvidia;
mod objects;
mod other_chip;
mod probe;
mod queues;
mod saved;
mod state;
mod versions;

use crate::abi::values::PciIdentity;
use crate::hal::GH100;
use crate::model::{GspConfig, ObjectLimits};
use gpuvmk_chip::EngineSet;

/// A GH100 of 256 MiB with graphics and three copy engines.
fn config() -> GspConfig {
    GspConfig {
        hal: &GH100,
        vram: 256 << 20,
        engines: EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1 | EngineSet::COPY2,
        channels: 8,
        graphics: None,
        objects: ObjectLimits::default(),
        pci: PciIdentity {
            vendor: 0x10de,
            device: 0x2330,
            subsystem_vendor: 0x10de,
            subsystem: 0x16c1,
            revision: 0xa1,
            bars: [16 << 20, 256 << 20, 32 << 20],
        },
        uuid: *b"a UUID of a card",
        has_head: false,
    }
}
