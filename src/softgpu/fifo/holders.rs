//! Which channel has which engine.

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;

/// Engines that a chip can have, for tables by engine.
const ENGINES: usize = 6;

/// Index of an engine in such tables.
fn engine_index(engine: Engine) -> Option<usize> {
    match engine {
        Engine::Graphics => Some(0),
        Engine::Copy(number) => Some(usize::from(number) + 1).filter(|index| *index < ENGINES),
    }
}

/// The holders, by engine.
#[derive(Debug, Default)]
pub(super) struct Holders {
    holders: [Option<HostChannel>; ENGINES],
}

impl Holders {
    /// The channel that has the engine.
    pub(super) fn of(&self, engine: Engine) -> Option<HostChannel> {
        engine_index(engine).and_then(|index| self.holders.get(index)).copied().flatten()
    }

    /// Gives the engine to a channel, whoever had it. False when there is no such engine.
    pub(super) fn give(&mut self, engine: Engine, channel: HostChannel) -> bool {
        let holder = engine_index(engine).and_then(|index| self.holders.get_mut(index));
        holder.map(|holder| *holder = Some(channel)).is_some()
    }

    /// Takes all engines of a channel back.
    pub(super) fn release(&mut self, channel: HostChannel) {
        for holder in self.holders.iter_mut().filter(|holder| **holder == Some(channel)) {
            *holder = None;
        }
    }
}
