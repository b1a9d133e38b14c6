//! Channels that the back stopped and of which GSP has not told the driver yet.
//!
//! Events come from threads that may not wait for GSP: it may be waiting for the very process that sends
//! them. They leave the event here; whoever holds GSP takes them when it finishes. A channel is listed once,
//! for the first reason: what follows is about a channel that stands still.

use super::gsp::Stopped;

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
