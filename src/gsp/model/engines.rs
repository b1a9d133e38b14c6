//! The runlists that engines sit on: copy engine 0 shares the graphics
//! engine's runlist (the GRCE), each other copy engine has its own runlist.

use gpuvmk_chip::{Engine, EngineSet};

/// The runlist of an engine.
pub(super) fn runlist(engine: Engine) -> u16 {
    // The places of graphics and of copy engine 0 come first.
    engine.place().saturating_sub(1).into()
}

/// Its place there: the GRCE comes second on the graphics runlist.
pub(super) const fn place_on_runlist(engine: Engine) -> u32 {
    matches!(engine, Engine::COPY0) as u32
}

/// Those of `engines` that sit on a runlist.
pub(super) fn of_runlist(engines: EngineSet, number: u16) -> EngineSet {
    engines.engines().filter(|engine| runlist(*engine) == number).map(EngineSet::from).collect()
}
