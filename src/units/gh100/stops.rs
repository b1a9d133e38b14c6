//! Channels that the back stopped and of which GSP has not told the driver yet.
//!
//! Events come from threads that may not wait for GSP: it may be waiting for the very process that sends
//! them. They leave the event here; whoever holds GSP takes them when it finishes. A channel is listed once,
//! for the first reason: what follows is about a channel that stands still.

use std::collections::BTreeSet;

use super::gsp::Stopped;
use gpuvmk_chip::Engine;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// Stopped channels that wait; more than a function has channels.
const LIMIT: usize = 4096;

/// The list.
#[derive(Debug, Default)]
pub struct Stops {
    waiting: Vec<Stopped>,
    dropped: u64,
}

impl Stops {
    /// Lists a channel. False when there is no room.
    pub fn push(&mut self, stopped: Stopped) {
        if self.waiting.iter().any(|known| known.slot == stopped.slot) {
            return;
        }
        if self.waiting.len() < LIMIT {
            self.waiting.push(stopped);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Takes what waits, in the order of coming.
    pub fn take(&mut self) -> Vec<Stopped> {
        std::mem::take(&mut self.waiting)
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets everything but the count.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Channels for which there was no room.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// State of [`Stops`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopsState {
    /// Channels that wait, in the order of coming.
    pub waiting: Vec<StoppedState>,
    /// Channels for which there was no room.
    pub dropped: u64,
}

/// A channel of [`StopsState`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoppedState {
    /// Slot at the back.
    pub slot: u16,
    /// Engine that reported it.
    pub engine: Engine,
    /// `ROBUST_CHANNEL_*` number.
    pub code: u32,
    /// Faulting virtual address.
    pub address: u64,
    /// Fault type in Volta's numbering.
    pub fault_type: u32,
}

impl Stops {
    /// What is to be saved.
    pub fn state(&self) -> StopsState {
        let Self { waiting, dropped } = self;
        let saved = |stopped: &Stopped| {
            let Stopped { slot, engine, code, address, fault_type } = *stopped;
            StoppedState { slot, engine, code, address, fault_type }
        };
        StopsState { waiting: waiting.iter().map(saved).collect(), dropped: *dropped }
    }

    /// The list in a saved state.
    ///
    /// # Errors
    /// It is too long, or has a channel twice.
    pub fn from_state(state: &StopsState) -> Result<Self, StateError> {
        let check = Check("stopped channels");
        check.at_most("waiting", state.waiting.len(), LIMIT)?;
        let slots: BTreeSet<_> = state.waiting.iter().map(|stopped| stopped.slot).collect();
        check.that(slots.len() == state.waiting.len(), || "a channel is there twice".to_owned())?;
        let made = |stopped: &StoppedState| {
            let StoppedState { slot, engine, code, address, fault_type } = *stopped;
            Stopped { slot, engine, code, address, fault_type }
        };
        Ok(Self { waiting: state.waiting.iter().map(made).collect(), dropped: state.dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Engine;

    fn stopped(slot: u16, code: u32) -> Stopped {
        Stopped { slot, engine: Engine::Graphics, code, address: 0, fault_type: 0 }
    }

    #[test]
    fn first_reason_of_a_channel_counts() {
        let mut stops = Stops::default();
        stops.push(stopped(1, 31));
        stops.push(stopped(2, 13));
        stops.push(stopped(1, 32));
        assert_eq!(stops.take(), [stopped(1, 31), stopped(2, 13)]);
        assert!(stops.is_empty());
    }

    #[test]
    fn list_does_not_grow_without_bound() {
        let mut stops = Stops::default();
        for slot in 0..=u16::MAX {
            stops.push(stopped(slot, 31));
        }
        assert_eq!(stops.take().len(), LIMIT);
        assert_eq!(stops.dropped(), (1 << 16) - LIMIT as u64);
    }
}
