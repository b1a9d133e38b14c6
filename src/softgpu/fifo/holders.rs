//! Which channel has which engine.

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;

/// The holders, by [`Engine::place`].
#[derive(Debug)]
pub(super) struct Holders {
    holders: [Option<HostChannel>; Engine::COUNT],
}

impl Default for Holders {
    fn default() -> Self {
        Self { holders: [None; Engine::COUNT] }
    }
}

impl Holders {
    /// The channel that has the engine.
    pub(super) fn of(&self, engine: Engine) -> Option<HostChannel> {
        self.holders.get(usize::from(engine.place())).copied().flatten()
    }

    /// Gives the engine to a channel, whoever had it. False when there is no such engine.
    pub(super) fn give(&mut self, engine: Engine, channel: HostChannel) -> bool {
        let holder = self.holders.get_mut(usize::from(engine.place()));
        holder.map(|holder| *holder = Some(channel)).is_some()
    }

    /// Takes all engines of a channel back.
    pub(super) fn release(&mut self, channel: HostChannel) {
        for holder in self.holders.iter_mut().filter(|holder| **holder == Some(channel)) {
            *holder = None;
        }
    }
}
