//! How fast a viewer takes what it gets: whether compressing is worth its time.
//!
//! A viewer beside the server takes pixels as they are faster than they could be compressed; one behind a
//! tunnel does not. An update during which the viewer was waited for during more than half a picture's time
//! makes the pipe narrow, for more and more updates.

use std::time::Duration;

use crate::watch::FRAME_TIME;

/// Updates for which a pipe is narrow at first, and at most.
const NARROW: (u32, u32) = (32, 4096);

/// A way to a viewer.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// Since when the viewer takes no more.
    full_since: Option<Duration>,
    /// How long it took no more, in this update.
    waited: Duration,
    /// Updates until it is taken for wide again.
    narrow: u32,
    /// For how many it was taken for narrow last.
    penalty: u32,
}

impl Pipe {
    /// Whether pixels may be sent as they are.
    pub(super) fn is_wide(&self) -> bool {
        self.narrow == 0
    }

    /// An update begins.
    pub(super) fn begin(&mut self) {
        self.narrow = self.narrow.saturating_sub(1);
        if self.waited > FRAME_TIME / 2 {
            self.penalty = (self.penalty * 2).clamp(NARROW.0, NARROW.1);
            self.narrow = self.penalty;
        }
        self.waited = Duration::ZERO;
    }

    /// The viewer takes no more.
    pub(super) fn is_full(&mut self, now: Duration) {
        self.flows(now);
        self.full_since = Some(now);
    }

    /// The viewer took all that there was.
    pub(super) fn flows(&mut self, now: Duration) {
        if let Some(since) = self.full_since.take() {
            self.waited += now.saturating_sub(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An update during which the viewer is waited for so long.
    fn update(pipe: &mut Pipe, waited: Duration) {
        pipe.begin();
        pipe.is_full(Duration::ZERO);
        pipe.is_full(waited / 2);
        pipe.flows(waited);
        pipe.flows(waited * 9);
    }

    #[test]
    fn pipe_is_narrow_longer_and_longer() {
        let mut pipe = Pipe::default();
        update(&mut pipe, FRAME_TIME / 4);
        for updates in [32, 64, 128] {
            pipe.begin();
            assert!(pipe.is_wide());
            update(&mut pipe, FRAME_TIME);
            for _ in 0..updates {
                pipe.begin();
                assert!(!pipe.is_wide());
            }
        }
        for _ in 0..20 {
            update(&mut pipe, FRAME_TIME);
        }
        pipe.begin();
        assert_eq!(pipe.narrow, 4096);
    }
}
