//! Engines as the resource manager numbers them.

use super::common::classes::{NV2080_ENGINE_TYPE_COPY0, NV2080_ENGINE_TYPE_GR0};
use gpuvmk_chip::Engine;

/// `NV2080_ENGINE_TYPE_*` of an engine; `RM_ENGINE_TYPE_*` has the same numbers up to the tenth copy engine.
pub(crate) const fn engine_type(engine: Engine) -> u32 {
    match engine {
        Engine::Graphics => NV2080_ENGINE_TYPE_GR0,
        // CAST: widening.
        Engine::Copy(n) => NV2080_ENGINE_TYPE_COPY0 + n as u32,
    }
}

/// The engine of a `NV2080_ENGINE_TYPE_*`.
pub(crate) fn of_type(number: u32) -> Option<Engine> {
    Engine::ALL.into_iter().find(|engine| engine_type(*engine) == number)
}
