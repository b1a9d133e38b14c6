//! Channels that the host took off an engine because they made no progress. They look like a context switch
//! that timed out: a scheduler error, and an engine that stands busy in the middle of switching the channel
//! out.
//!
//! That is what a driver looks for: it pretends an MMU fault of such an engine, and recovers from that. The
//! engine stands so until the driver stops the channel, or gives its number to another one. One is shown at a
//! time, the next when the driver is done with it; a channel hangs once, so the queue is bounded by the
//! number of channels.

use std::collections::VecDeque;

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::CHANNELS;
use gpuvmk_chip::gf100::regs::pfifo::{NV_PFIFO_ENGINE_STATUS, NV_PFIFO_SCHED_ERROR};
use gpuvmk_saved_state::{Check, StateError};

/// NV_PFIFO_SCHED_ERROR: a context switch did not end in time.
const CTXSW_TIMEOUT: u32 = NV_PFIFO_SCHED_ERROR::CODE.of(NV_PFIFO_SCHED_ERROR::CODE::CTXSW_TIMEOUT);
/// NV_PFIFO_ENGINE_STATUS of an engine that is busy saving a context: the bits that drivers look at (nouveau
/// `nvkm/engine/fifo/gf100.c`; those of 31 and 18 until Linux 6.1).
const SWITCHING: u32 = NV_PFIFO_ENGINE_STATUS::UNK31.mask()
    | NV_PFIFO_ENGINE_STATUS::BUSY.mask()
    | NV_PFIFO_ENGINE_STATUS::SAVE.mask()
    | NV_PFIFO_ENGINE_STATUS::UNK18.mask()
    | NV_PFIFO_ENGINE_STATUS::CTXSW_LOAD.mask()
    | NV_PFIFO_ENGINE_STATUS::CTXSW_SAVE.mask();

/// The hung channels.
#[derive(Clone, Debug, Default)]
pub struct Hangs {
    waiting: VecDeque<(Engine, GuestChannel)>,
}

impl Hangs {
    /// Notes a channel. True when it is shown from now on.
    pub fn push(&mut self, engine: Engine, channel: GuestChannel) -> bool {
        let first = self.waiting.is_empty();
        let known = self.waiting.iter().any(|(_, other)| *other == channel);
        if !known && self.waiting.len() < usize::from(CHANNELS) {
            self.waiting.push_back((engine, channel));
        }
        first
    }

    /// The driver stopped the channel, or forgot it. True when another one is shown from now on.
    pub fn remove(&mut self, channel: GuestChannel) -> bool {
        let shown = self.waiting.front().is_some_and(|(_, first)| *first == channel);
        self.waiting.retain(|(_, other)| *other != channel);
        shown && !self.waiting.is_empty()
    }

    /// The channel that the engine stands with.
    pub fn on(&self, engine: Engine) -> Option<GuestChannel> {
        self.waiting.front().filter(|(stands, _)| *stands == engine).map(|(_, channel)| *channel)
    }

    /// The engine's status, if it stands.
    pub fn status(&self, engine: Engine) -> Option<u32> {
        self.on(engine).map(|channel| SWITCHING | NV_PFIFO_ENGINE_STATUS::CHID.of(channel.0.into()))
    }

    /// The scheduler's error code.
    pub fn code(&self) -> u32 {
        if self.waiting.is_empty() { 0 } else { CTXSW_TIMEOUT }
    }
}

impl Hangs {
    /// The state to save: engines and channels, in order.
    pub fn state(&self) -> Vec<(Engine, GuestChannel)> {
        let Self { waiting } = self;
        waiting.iter().copied().collect()
    }

    /// Hung channels in a saved state.
    ///
    /// # Errors
    /// There are more than channels, or one is there twice.
    pub fn from_state(state: &[(Engine, GuestChannel)]) -> Result<Self, StateError> {
        let check = Check("hangs");
        check.at_most("channels", state.len(), usize::from(CHANNELS))?;
        for (index, (_, channel)) in state.iter().enumerate() {
            let is_again = state.iter().take(index).any(|(_, other)| other == channel);
            check.that(!is_again, || format!("channel {} hangs twice", channel.0))?;
        }
        Ok(Self { waiting: state.iter().copied().collect() })
    }
}
