//! What the composing thread shares with those who look.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counts::WatchCounts;
use crate::source::{Picture, Wake};

/// What the thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Compose; the flag says whether something was flipped since it last did.
    Compose {
        /// Whether it was.
        flipped: bool,
    },
    /// Give memory back: nobody looks.
    Forget,
    /// End.
    Stop,
}

/// Both sides' state. The lock is held for a few instructions only.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Told to the thread: somebody looks, something was flipped, or the end.
    pub(super) wake: Condvar,
    /// Told to those who wait for a round.
    done: Condvar,
    /// How many look, to be seen without the lock.
    lookers: AtomicUsize,
    pub(super) counts: WatchCounts,
}

/// What the lock protects.
#[derive(Default)]
pub(super) struct State {
    /// Those who look.
    wakes: BTreeMap<u64, (Wake, u64)>,
    next_id: u64,
    /// Rounds that have begun, and those that have ended.
    begun: u64,
    ended: u64,
    /// The last picture that differed from the one before.
    latest: Option<Arc<Picture>>,
    pub(super) flipped: bool,
    pub(super) stop: bool,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("lookers", &self.wakes.len()).finish_non_exhaustive()
    }
}

impl State {
    /// The newest picture, if a round that began after so many ones has ended.
    pub(super) fn latest_since(&self, round: u64) -> Option<Arc<Picture>> {
        self.latest.clone().filter(|_| self.ended > round)
    }

    /// Whether somebody waits for a first picture.
    fn is_awaited(&self) -> bool {
        self.wakes.values().any(|(_, round)| *round >= self.begun)
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many look.
    pub(super) fn lookers(&self) -> usize {
        self.lookers.load(Ordering::Acquire)
    }

    /// Somebody looks: comes back with a number for [`Self::remove`], and the rounds that have begun.
    pub(super) fn add(&self, wake: Wake) -> (u64, u64) {
        let mut state = self.lock();
        let (id, begun) = (state.next_id, state.begun);
        state.next_id += 1;
        state.wakes.insert(id, (wake, begun));
        self.lookers.store(state.wakes.len(), Ordering::Release);
        self.wake.notify_one();
        (id, begun)
    }

    /// Somebody looks no more.
    pub(super) fn remove(&self, id: u64) {
        let mut state = self.lock();
        // Whatever it holds goes after the lock.
        let gone = state.wakes.remove(&id);
        self.lookers.store(state.wakes.len(), Ordering::Release);
        drop(state);
        drop(gone);
    }

    /// Waits until a round ends, at most so long.
    pub(super) fn wait_composed<'a>(
        &self,
        state: MutexGuard<'a, State>,
        most: Duration,
    ) -> MutexGuard<'a, State> {
        self.done.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for something to do. `due` says when the next round may begin, by whether something was flipped
    /// and how long nothing has changed.
    pub(super) fn next_order(
        &self,
        quiet: u32,
        due: impl Fn(bool, u32) -> Option<Instant>,
        keep: Duration,
    ) -> Order {
        let mut state = self.lock();
        let mut unwatched_since = Instant::now();
        loop {
            if state.stop {
                return Order::Stop;
            }
            let now = Instant::now();
            let until = if state.wakes.is_empty() {
                match (unwatched_since + keep).checked_duration_since(now) {
                    // Nothing is kept any more: waits for somebody.
                    _ if state.latest.is_none() => None,
                    Some(left) if !left.is_zero() => Some(left),
                    _ => {
                        state.latest = None;
                        return Order::Forget;
                    }
                }
            } else {
                unwatched_since = now;
                let eager = state.flipped || state.is_awaited();
                match due(eager, quiet).and_then(|due| due.checked_duration_since(now)) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => {
                        state.begun += 1;
                        let flipped = std::mem::take(&mut state.flipped);
                        return Order::Compose { flipped };
                    }
                }
            };
            state = match until {
                Some(left) => self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// A round has ended. The picture before comes back, if there is a new one, and who is to be told.
    pub(super) fn composed(&self, picture: Option<Arc<Picture>>) -> (Option<Arc<Picture>>, Vec<Wake>) {
        let mut state = self.lock();
        state.ended = state.begun;
        let changed = picture.is_some();
        let round = state.begun;
        // Who waits for a first picture is told of one that is as the one before, too.
        let told = state.wakes.values().filter(|(_, since)| changed || since + 1 == round);
        let wakes = told.map(|(wake, _)| Arc::clone(wake)).collect();
        let before = if changed { std::mem::replace(&mut state.latest, picture) } else { None };
        self.done.notify_all();
        (before, wakes)
    }
}
