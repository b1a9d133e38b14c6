//! Channels that the back stopped and that GSP has not reported to the driver yet.
//!
//! Events come from threads that must not wait for GSP: it may be waiting for the very process that sends
//! them. They leave the event here, and the holder of GSP takes them when it finishes. A channel is listed
//! once, for the first reason: later ones are about a channel that stands still.

use std::collections::BTreeSet;

use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::ChannelStop;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// Stopped channels that wait; more than a function has channels.
const LIMIT: usize = 4096;

/// The list.
#[derive(Debug, Default)]
pub struct UnreportedStops {
    waiting: Vec<ChannelStop<GuestChannel>>,
    dropped: u64,
}

impl UnreportedStops {
    /// Lists a channel, or counts it where there is no room.
    pub fn push(&mut self, stop: ChannelStop<GuestChannel>) {
        if self.waiting.iter().any(|known| known.channel == stop.channel) {
            return;
        }
        if self.waiting.len() < LIMIT {
            self.waiting.push(stop);
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Takes what waits, in the order of coming.
    pub fn take(&mut self) -> Vec<ChannelStop<GuestChannel>> {
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

/// State of [`UnreportedStops`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnreportedStopsState {
    /// Channels that wait, in the order of coming.
    pub waiting: Vec<ChannelStop<GuestChannel>>,
    /// Channels for which there was no room.
    pub dropped: u64,
}

impl UnreportedStops {
    /// The state to save.
    pub fn state(&self) -> UnreportedStopsState {
        let Self { waiting, dropped } = self;
        UnreportedStopsState { waiting: waiting.clone(), dropped: *dropped }
    }

    /// The list in a saved state.
    ///
    /// # Errors
    /// It is too long, or has a channel twice.
    pub fn from_state(state: &UnreportedStopsState) -> Result<Self, StateError> {
        let check = Check("stopped channels");
        check.at_most("waiting", state.waiting.len(), LIMIT)?;
        let channels: BTreeSet<_> = state.waiting.iter().map(|stop| stop.channel).collect();
        check.that(channels.len() == state.waiting.len(), || "a channel is there twice".to_owned())?;
        Ok(Self { waiting: state.waiting.clone(), dropped: state.dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::channel_event::StopCause;

    const fn stopped(channel: u16, code: u32) -> ChannelStop<GuestChannel> {
        ChannelStop { channel: GuestChannel(channel), cause: StopCause::Manager(code) }
    }

    #[test]
    fn first_reason_of_a_channel_counts() {
        let mut stops = UnreportedStops::default();
        stops.push(stopped(1, 31));
        stops.push(stopped(2, 13));
        stops.push(stopped(1, 32));
        assert_eq!(stops.take(), [stopped(1, 31), stopped(2, 13)]);
        assert!(stops.is_empty());
    }

    #[test]
    fn list_does_not_grow_without_bound() {
        let mut stops = UnreportedStops::default();
        for channel in 0..=u16::MAX {
            stops.push(stopped(channel, 31));
        }
        assert_eq!(stops.take().len(), LIMIT);
        assert_eq!(stops.dropped(), (1 << 16) - LIMIT as u64);
    }
}
