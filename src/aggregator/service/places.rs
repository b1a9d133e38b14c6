//! Places of connections that are no tenants yet, and what is remembered of their users.
//!
//! There are [`MOST`]; a process may have [`MOST_OF_PROCESS`] of them and a user [`MOST_OF_USER`], so that no
//! user takes all. A connection that comes when no place is free gets the place of the one that was silent
//! for longest: an honest back end says hello at once. Ended connections whose porters are still closing
//! files have as many places again; a newcomer waits where that began a moment ago, since a porter that has
//! nothing to wait for needs a processor to end.
//!
//! Admitting a tenant takes the aggregator's thread some tenths of a millisecond, in steps that others'
//! requests wait for. So [`BURST`] tenants of one user may come at once, and one each [`BETWEEN`] from then
//! on; earlier ones wait in their porters.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::porter_signals::PorterSignals;
use gpuvmk_host::reaper::Account;
use gpuvmk_ordered::OrderedMap;

/// Connections that are no tenants (yet), and connections that have ended and whose porters have not.
const MOST: usize = 32;
/// The same of one process, and of one user.
const MOST_OF_PROCESS: usize = 4;
const MOST_OF_USER: usize = 24;

/// How long a connection has to say hello before another may take its place.
pub(super) const GRACE: Duration = Duration::from_millis(20);

/// How long a connection that ends is taken for one that only needs a processor for it.
const ENDS_SOON: Duration = Duration::from_secs(1);
/// How often a newcomer looks again whether such have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Tenants of one user that are admitted without a pause, and how often one is after that.
const BURST: u32 = 32;
const BETWEEN: Duration = Duration::from_millis(50);

/// Lines in the log a minute because of unadmitted connections of one user.
const MOST_LINES: u64 = 20;

/// Users of whom something is remembered.
const MOST_USERS: usize = 1024;

/// State of a connection at the gate.
mod state {
    /// The connection has sent nothing yet.
    pub const SILENT: u8 = 0;
    /// Its wish is being looked at.
    pub const ASKS: u8 = 1;
    /// It is a tenant.
    pub const TENANT: u8 = 2;
    /// It must give its place to another connection, or has ended: its porter ends when it can.
    pub const CLOSES: u8 = 3;
}

/// A connection's place. It is free when the porter is gone.
#[derive(Debug)]
pub(super) struct Place {
    pid: i32,
    uid: u32,
    since: Instant,
    state: AtomicU8,
    closes_since: OnceLock<Instant>,
    signals: OnceLock<Arc<PorterSignals>>,
    misbehaviour: Arc<Misbehaviour>,
}

/// Protocol violations by a user's unadmitted connections.
#[derive(Debug)]
pub(super) struct Misbehaviour {
    uid: u32,
    since: Instant,
    pub count: AtomicU64,
    /// Minute of the last line in the log, and lines of that minute.
    minute: AtomicU64,
    lines: AtomicU64,
    pub closing: Account,
    /// When all that were admitted so far would have been, one each [`BETWEEN`].
    admitted: Mutex<Instant>,
}

impl Misbehaviour {
    fn new(uid: u32) -> Self {
        let (count, minute, lines) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let now = Instant::now();
        Self { uid, since: now, count, minute, lines, closing: Account::default(), admitted: Mutex::new(now) }
    }

    /// True if the log takes another line about this user. Limited, because the user decides how often that
    /// is asked.
    fn may_log(&self) -> bool {
        let minute = self.since.elapsed().as_secs() / 60;
        if self.minute.swap(minute, Ordering::Relaxed) != minute {
            self.lines.store(0, Ordering::Relaxed);
        }
        self.lines.fetch_add(1, Ordering::Relaxed) < MOST_LINES
    }

    /// How long a hello that comes now has to wait.
    fn wait_to_ask(&self, now: Instant) -> Duration {
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        *admitted = now.max(*admitted) + BETWEEN;
        admitted.saturating_duration_since(now).saturating_sub(BETWEEN.saturating_mul(BURST))
    }

    /// Counts a violation, and logs it.
    pub fn note(&self, what: &str) {
        let count = self.count.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if self.may_log() {
            log::warn!(
                "a connection of user {} that is no VM: {what} ({count} such refusals so far)",
                self.uid
            );
        }
    }
}

impl Place {
    /// A place of a connection that has sent nothing.
    pub fn new(pid: i32, uid: u32, now: Instant, misbehaviour: Arc<Misbehaviour>) -> Self {
        let (state, signals) = (AtomicU8::new(state::SILENT), OnceLock::new());
        Self { pid, uid, since: now, state, closes_since: OnceLock::new(), signals, misbehaviour }
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    pub fn set_signals(&self, signals: &Arc<PorterSignals>) {
        let _ = self.signals.set(Arc::clone(signals));
    }

    /// It has sent its hello. Returns how long the hello waits because others of its user came before.
    pub fn asks(&self) -> Duration {
        self.state.store(state::ASKS, Ordering::Relaxed);
        self.misbehaviour.wait_to_ask(Instant::now())
    }

    /// It is a tenant.
    pub fn is_tenant(&self) {
        self.state.store(state::TENANT, Ordering::Relaxed);
    }

    /// It has ended, or has to.
    pub fn closes(&self, now: Instant) {
        let _ = self.closes_since.set(now);
        self.state.store(state::CLOSES, Ordering::Relaxed);
    }

    /// A message of an unadmitted connection was refused.
    pub fn refused(&self) {
        self.misbehaviour.note("its message was refused");
    }

    /// Counts a hello that was refused. True if the log takes a line that says why.
    pub fn turned_down(&self) -> bool {
        self.misbehaviour.count.fetch_add(1, Ordering::Relaxed);
        self.misbehaviour.may_log()
    }

    /// An unadmitted connection is sent away.
    pub fn sent_away(&self, why: &str) {
        self.misbehaviour.note(why);
    }
}

/// The places of all unadmitted connections.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub places: Vec<Weak<Place>>,
    pub misbehaviours: OrderedMap<u32, Arc<Misbehaviour>>,
}

/// The result for a newcomer.
pub(super) enum Found {
    /// There is a place.
    Place(Arc<Misbehaviour>),
    /// None is free, but one may be after so long.
    Later(Arc<Misbehaviour>, Duration),
    /// There is no place, and why.
    Nothing(Arc<Misbehaviour>, &'static str),
}

impl Places {
    pub fn misbehaviour(&mut self, uid: u32) -> Arc<Misbehaviour> {
        if self.misbehaviours.len() >= MOST_USERS {
            self.misbehaviours.retain(|_, misbehaviour| {
                Arc::strong_count(misbehaviour) > 1 || misbehaviour.closing.backlog() > 0
            });
        }
        Arc::clone(self.misbehaviours.entry(uid).or_insert_with(|| Arc::new(Misbehaviour::new(uid))))
    }

    /// Looks for a place for a connection of that process and user. Drops another connection for it, if need
    /// be.
    pub fn find(&mut self, pid: i32, uid: u32, is_other: bool, now: Instant) -> Found {
        let misbehaviour = self.misbehaviour(uid);
        self.places.retain(|place| place.strong_count() > 0);
        let live: Vec<Arc<Place>> = self.places.iter().filter_map(Weak::upgrade).collect();
        let closing = |place: &&Arc<Place>| place.state() == state::CLOSES;
        let unadmitted = |place: &&Arc<Place>| matches!(place.state(), state::SILENT | state::ASKS);
        let stuck = |place: &&Arc<Place>| {
            let since = place.closes_since.get().copied().unwrap_or(now);
            closing(place) && now.saturating_duration_since(since) >= ENDS_SOON
        };
        let too_many = |of: &dyn Fn(&&Arc<Place>) -> bool| {
            live.iter().filter(of).count() >= MOST
                || live.iter().filter(of).filter(|place| place.uid == uid).count() >= MOST_OF_USER
        };
        if too_many(&stuck) {
            return Found::Nothing(misbehaviour, "too many of its user's connections are still being closed");
        }
        if too_many(&closing) {
            return Found::Later(misbehaviour, LOOK_AGAIN);
        }
        let of_process = live.iter().filter(unadmitted).filter(|place| place.pid == pid).count();
        if is_other && of_process >= MOST_OF_PROCESS {
            return Found::Nothing(misbehaviour, "its process has 4 connections that are no VMs");
        }
        let mut by_user: HashMap<u32, usize> = HashMap::new();
        for place in live.iter().filter(unadmitted) {
            let count = by_user.entry(place.uid).or_default();
            *count = count.saturating_add(1);
        }
        let own = by_user.get(&uid).copied().unwrap_or(0);
        let all = by_user.values().fold(0_usize, |sum, count| sum.saturating_add(*count));
        if all < MOST && own < MOST_OF_USER {
            return Found::Place(misbehaviour);
        }
        // Of the user that has most, the one that was silent for longest.
        let most = if own >= MOST_OF_USER {
            Some(uid)
        } else {
            by_user.iter().max_by_key(|(_, count)| **count).map(|(uid, _)| *uid)
        };
        let silent = live.iter().filter(|place| place.state() == state::SILENT && Some(place.uid) == most);
        let Some(oldest) = silent.min_by_key(|place| place.since) else {
            return Found::Nothing(misbehaviour, "all places of those who are no VMs yet are taken");
        };
        let left = GRACE.saturating_sub(now.saturating_duration_since(oldest.since));
        if !left.is_zero() {
            return Found::Later(misbehaviour, left);
        }
        oldest.closes(now);
        if let Some(signals) = oldest.signals.get() {
            signals.give_way();
        }
        Found::Place(misbehaviour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Street {
        places: Places,
        taken: Vec<Arc<Place>>,
        now: Instant,
    }

    impl Street {
        fn new() -> Self {
            Self { places: Places::default(), taken: Vec::new(), now: Instant::now() }
        }

        fn find(&mut self, pid: i32, uid: u32) -> Found {
            self.places.find(pid, uid, true, self.now)
        }

        /// True if it gets in.
        fn come(&mut self, pid: i32, uid: u32) -> bool {
            let Found::Place(misbehaviour) = self.find(pid, uid) else { return false };
            let place = Arc::new(Place::new(pid, uid, self.now, misbehaviour));
            self.places.places.push(Arc::downgrade(&place));
            self.taken.push(place);
            true
        }

        fn in_state(&self, uid: u32, state: u8) -> usize {
            self.taken.iter().filter(|place| place.uid == uid && place.state() == state).count()
        }
    }

    #[test]
    fn process_and_user_have_so_many_places() {
        let mut street = Street::new();
        assert!((0..MOST_OF_PROCESS).all(|_| street.come(1, 7)));
        assert!(!street.come(1, 7), "its process has enough");
        for pid in (2..20).flat_map(|pid| [pid; MOST_OF_PROCESS]) {
            street.come(pid, 7);
        }
        assert_eq!(street.taken.len(), MOST_OF_USER, "the rest is for others");
        assert!((100..108).all(|pid: i32| street.come(pid, pid.cast_unsigned())));
    }

    #[test]
    fn newcomer_gets_the_place_of_the_longest_silence_of_whom_has_most() {
        let mut street = Street::new();
        (1..7).for_each(|pid| (0..MOST_OF_PROCESS).for_each(|_| assert!(street.come(pid, 7))));
        (0..8).for_each(|pid| assert!(street.come(100 + pid, 8)));
        assert!(!street.come(200, 9), "they have just come");

        street.now += GRACE;
        assert!(street.come(200, 9) && street.come(300, 7), "also of a user who has many");
        assert_eq!((street.in_state(7, state::CLOSES), street.in_state(8, state::CLOSES)), (2, 0));

        street.taken.iter().filter(|place| place.uid == 7).for_each(|place| {
            if place.state() == state::SILENT {
                let _ = place.asks();
            }
        });
        assert!(!street.come(301, 7), "nobody of that user is silent");
    }

    #[test]
    fn tenants_of_a_user_are_admitted_in_a_burst_and_then_one_by_one() {
        let misbehaviour = Misbehaviour::new(7);
        let start = Instant::now() + BETWEEN;
        assert!((0..BURST).all(|_| misbehaviour.wait_to_ask(start).is_zero()));
        assert_eq!([1, 2].map(|_| misbehaviour.wait_to_ask(start)), [BETWEEN, BETWEEN * 2]);
        assert_eq!(misbehaviour.wait_to_ask(start + BETWEEN * 4), Duration::ZERO, "they have had their time");

        let later = start + BETWEEN * 1000;
        assert!(
            (0..BURST).all(|_| misbehaviour.wait_to_ask(later).is_zero()),
            "pauses save no more than a burst"
        );
        assert_eq!(misbehaviour.wait_to_ask(later), BETWEEN);
    }

    #[test]
    fn connections_that_cannot_be_closed_count_against_their_user_alone() {
        let mut street = Street::new();
        for pid in 0..i32::try_from(MOST_OF_USER).unwrap() {
            assert!(street.come(pid, 7));
            street.taken.last().unwrap().closes(street.now);
        }
        assert!(matches!(street.find(99, 7), Found::Later(..)), "they have just begun");
        assert!(street.come(100, 8));
        street.now += ENDS_SOON;
        assert!(matches!(street.find(99, 7), Found::Nothing(..)), "something else keeps them");
        assert!(street.come(101, 8));
        street.taken.remove(0);
        assert!(street.come(99, 7), "one is closed at last");
    }
}
