//! Real engines behind the engines of a vGPU.

use super::device::CopyEngine;
use gpuvmk_chip::{Engine, EngineSet};

/// Real engines behind the engines of a vGPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineTable {
    /// Real copy engine behind each of Copy(0), on the graphics runlist, Copy(1) and Copy(2), alone on
    /// theirs.
    pub copy: [u32; 3],
}

impl EngineTable {
    /// Chooses: of the lone engines those with most physical units behind them.
    pub fn choose(copy_engines: &[CopyEngine]) -> Option<Self> {
        let with_graphics = copy_engines.iter().find(|engine| engine.with_graphics)?;
        let mut lone: Vec<_> = copy_engines.iter().filter(|engine| !engine.with_graphics).collect();
        lone.sort_by_key(|engine| (std::cmp::Reverse(engine.units.count_ones()), engine.number));
        let [first, second, ..] = lone.as_slice() else { return None };
        Some(Self { copy: [with_graphics.number, first.number, second.number] })
    }

    /// `NV2080_ENGINE_TYPE` of an engine.
    pub fn engine_type(&self, engine: Engine) -> Option<u32> {
        match engine {
            Engine::Graphics => Some(engine.nv2080_type()),
            Engine::Copy(n) => {
                let real = self.copy.get(usize::from(n.get()))?;
                let real = u8::try_from(*real).ok()?.try_into().ok()?;
                Some(Engine::Copy(real).nv2080_type())
            }
            _ => None,
        }
    }

    /// The engine whose runlist a channel with these engines is on.
    pub fn runlist(&self, engines: EngineSet) -> Option<Engine> {
        let first = engines.engines().next()?;
        let together = EngineSet::GRAPHICS | EngineSet::COPY0;
        // A channel has the graphics engine and its copy engine, or one lone engine.
        let fits = together.contains(engines) || engines == EngineSet::from(first);
        (fits && self.engine_type(first).is_some()).then_some(first)
    }
}
