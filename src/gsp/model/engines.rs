//! Engines as the resource manager numbers them, and the runlists that they sit on: copy engine 0 shares the
//! graphics engine's runlist (the GRCE), each other copy engine has one of its own.

use crate::abi::object::{NV2080_ENGINE_TYPE_COPY0, NV2080_ENGINE_TYPE_GR0};
use gpuvmk_chip::{Engine, EngineSet};

/// `NV2080_ENGINE_TYPE_*` of an engine; `RM_ENGINE_TYPE_*` has the same numbers up to the tenth copy engine.
pub(super) const fn engine_type(engine: Engine) -> u32 {
    match engine {
        Engine::Graphics => NV2080_ENGINE_TYPE_GR0,
        // CAST: widening.
        Engine::Copy(n) => NV2080_ENGINE_TYPE_COPY0 + n as u32,
    }
}

/// The engine of a `NV2080_ENGINE_TYPE_*`.
pub(super) fn of_type(number: u32) -> Option<Engine> {
    Engine::ALL.into_iter().find(|engine| engine_type(*engine) == number)
}

/// The runlist of an engine.
pub(super) const fn runlist(engine: Engine) -> u16 {
    match engine {
        Engine::Graphics => 0,
        // CAST: widening.
        Engine::Copy(n) => n as u16,
    }
}

/// Those of `engines` that sit on a runlist.
pub(super) fn of_runlist(engines: EngineSet, number: u16) -> EngineSet {
    engines.engines().filter(|engine| runlist(*engine) == number).map(EngineSet::from).collect()
}
