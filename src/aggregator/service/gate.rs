//! The gate: accepts connections of device backends, and gives each a porter.
//!
//! Until a connection is a tenant it has a place among strangers. There are [`MOST`]; a process may have [`MOST_OF_PROCESS`] of them and a
//! user [`MOST_OF_USER`], so that no user takes all. Whoever comes when no place is free gets that of somebody who has said nothing
//! for longest: an honest back end says hello at once. Connections that have ended, and whose porters are still held up by what
//! they close, have as many places of their own.
//!
//! The aggregator's own thread hears of a connection with its hello.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;

use super::ServiceRemote;
use super::connection::Peer;
use super::porter::{Line, Porter};
use crate::aggregator::protocol::{RefusalKind, Reply};
use crate::aggregator::{seqpacket, wire};
use crate::jail::{self, Role};
use crate::reaper::Account;
use crate::socket_path::Listener;

/// Connections that are no tenants (yet), and connections that have ended and whose porters have not.
const MOST: usize = 32;
/// The same of one process, and of one user.
const MOST_OF_PROCESS: usize = 4;
const MOST_OF_USER: usize = 24;

/// How long a connection has to say hello before another may take its place.
const GRACE: Duration = Duration::from_millis(20);

/// Wait after a failed `accept`: it fails for want of descriptors or memory, which does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections of a user that were not taken and are not closed yet, before nobody is accepted any more.
const MOST_UNCLOSED: usize = 4096;

/// Lines in the log a minute because of strangers of one user.
const MOST_LINES: u64 = 20;

/// Users of whom something is remembered.
const MOST_USERS: usize = 1024;

/// Room on a porter's stack.
const STACK: usize = 256 << 10;

/// A socket at which back ends connect.
#[derive(Debug)]
pub(in crate::aggregator) struct Door {
    pub listener: Listener,
    /// The VM whose own it is; `None`: everybody's.
    pub vm: Option<String>,
}

/// What a connection is to the gate.
mod state {
    /// Nothing was said.
    pub const SILENT: u8 = 0;
    /// Its wish is being looked at.
    pub const ASKS: u8 = 1;
    /// A tenant.
    pub const TENANT: u8 = 2;
    /// It was told to give its place to somebody else, or has ended: its porter ends when it can.
    pub const CLOSES: u8 = 3;
}

/// A connection's place. It is free when the porter is gone.
#[derive(Debug)]
pub(super) struct Place {
    pid: i32,
    uid: u32,
    since: Instant,
    state: AtomicU8,
    line: OnceLock<Arc<Line>>,
    conduct: Arc<Conduct>,
}

/// What strangers of a user did that no honest back end does.
#[derive(Debug)]
struct Conduct {
    uid: u32,
    since: Instant,
    count: AtomicU64,
    /// Minute of the last line in the log, and lines of that minute.
    minute: AtomicU64,
    lines: AtomicU64,
    closing: Account,
}

impl Conduct {
    fn new(uid: u32) -> Self {
        let (count, minute, lines) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { uid, since: Instant::now(), count, minute, lines, closing: Account::default() }
    }

    /// Whether the log takes another line because of this user. Anybody decides how often that is asked.
    fn may_log(&self) -> bool {
        let minute = self.since.elapsed().as_secs() / 60;
        if self.minute.swap(minute, Ordering::Relaxed) != minute {
            self.lines.store(0, Ordering::Relaxed);
        }
        self.lines.fetch_add(1, Ordering::Relaxed) < MOST_LINES
    }

    /// Counts one.
    fn note(&self, what: &str) {
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
    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    pub fn set_line(&self, line: &Arc<Line>) {
        let _ = self.line.set(Arc::clone(line));
    }

    /// It has said hello.
    pub fn asks(&self) {
        self.state.store(state::ASKS, Ordering::Relaxed);
    }

    /// It is a tenant.
    pub fn is_tenant(&self) {
        self.state.store(state::TENANT, Ordering::Relaxed);
    }

    /// It has ended.
    pub fn closes(&self) {
        self.state.store(state::CLOSES, Ordering::Relaxed);
    }

    /// A message of a stranger was refused.
    pub fn refused(&self) {
        self.conduct.note("its message was refused");
    }

    /// Counts a hello that was refused. True if the log takes a line that says why.
    pub fn turned_down(&self) -> bool {
        self.conduct.count.fetch_add(1, Ordering::Relaxed);
        self.conduct.may_log()
    }

    /// A stranger is sent away.
    pub fn sent_away(&self, why: &str) {
        self.conduct.note(why);
    }
}

/// All places.
#[derive(Debug, Default)]
struct Places {
    places: Vec<Weak<Place>>,
    conducts: BTreeMap<u32, Arc<Conduct>>,
}

/// What a newcomer finds.
enum Found {
    /// A place.
    Place(Arc<Conduct>),
    /// None, but somebody's after so long.
    Later(Duration),
    /// None.
    Nothing(Arc<Conduct>, &'static str),
}

impl Places {
    fn conduct(&mut self, uid: u32) -> Arc<Conduct> {
        if self.conducts.len() >= MOST_USERS {
            self.conducts
                .retain(|_, conduct| Arc::strong_count(conduct) > 1 || conduct.closing.backlog() > 0);
        }
        Arc::clone(self.conducts.entry(uid).or_insert_with(|| Arc::new(Conduct::new(uid))))
    }

    /// Looks for a place for a connection of that process and user; sends somebody away for it, if need be.
    fn find(&mut self, pid: i32, uid: u32, is_other: bool, now: Instant) -> Found {
        let conduct = self.conduct(uid);
        self.places.retain(|place| place.strong_count() > 0);
        let live: Vec<Arc<Place>> = self.places.iter().filter_map(Weak::upgrade).collect();
        let closing = |place: &&Arc<Place>| place.state() == state::CLOSES;
        let stranger = |place: &&Arc<Place>| matches!(place.state(), state::SILENT | state::ASKS);
        if live.iter().filter(closing).count() >= MOST
            || live.iter().filter(closing).filter(|place| place.uid == uid).count() >= MOST_OF_USER
        {
            return Found::Nothing(conduct, "too many of its user's connections are still being closed");
        }
        let of_process = live.iter().filter(stranger).filter(|place| place.pid == pid).count();
        if is_other && of_process >= MOST_OF_PROCESS {
            return Found::Nothing(conduct, "its process has 4 connections that are no VMs");
        }
        let mut by_user: HashMap<u32, usize> = HashMap::new();
        for place in live.iter().filter(stranger) {
            let count = by_user.entry(place.uid).or_default();
            *count = count.saturating_add(1);
        }
        let own = by_user.get(&uid).copied().unwrap_or(0);
        let all = by_user.values().fold(0_usize, |sum, count| sum.saturating_add(*count));
        if all < MOST && own < MOST_OF_USER {
            return Found::Place(conduct);
        }
        // Of whom has most, whoever has been silent for longest.
        let most = if own >= MOST_OF_USER {
            Some(uid)
        } else {
            by_user.iter().max_by_key(|(_, count)| **count).map(|(uid, _)| *uid)
        };
        let silent = live.iter().filter(|place| place.state() == state::SILENT && Some(place.uid) == most);
        let Some(oldest) = silent.min_by_key(|place| place.since) else {
            return Found::Nothing(conduct, "all places of those who are no VMs yet are taken");
        };
        let left = GRACE.saturating_sub(now.saturating_duration_since(oldest.since));
        if !left.is_zero() {
            return Found::Later(left);
        }
        oldest.closes();
        if let Some(line) = oldest.line.get() {
            line.give_way();
        }
        Found::Place(conduct)
    }
}

/// Takes connections in. Clones are the same gate.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    places: Mutex<Places>,
    next: AtomicU32,
    ends: AtomicBool,
}

impl Gate {
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Inner {
                places: Mutex::default(),
                next: AtomicU32::new(1),
                ends: AtomicBool::new(false),
            }),
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Every change of it is whole.
        self.inner.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What strangers did that no honest back end does, of all users that are remembered.
    pub fn refusals(&self) -> u64 {
        let count = |conduct: &Arc<Conduct>| conduct.count.load(Ordering::Relaxed);
        self.places().conducts.values().map(count).fold(0, u64::saturating_add)
    }

    /// Gives a connection that came by a door a porter, if there is a place.
    pub fn admit(&self, socket: OwnedFd, door: Option<&Door>, owner: ServiceRemote) {
        let peer = match Peer::of(&socket) {
            Ok(peer) => peer,
            Err(error) => {
                let conduct = self.places().conduct(u32::MAX);
                conduct.note(&format!("it is not known who it is: {error}"));
                return self.turn_away(socket, &conduct);
            }
        };
        if let Some(door) = door
            && let Err(refused) = door.listener.guard().judge(&peer.credentials())
        {
            let reply = Reply::Refused { kind: RefusalKind::Name, message: refused.to_string() };
            let mut bytes = Vec::new();
            wire::encode_reply(&reply, &mut bytes);
            // Who does not take it is not waited for.
            let _ = seqpacket::send(&socket, &bytes, &[], true);
            let conduct = self.places().conduct(peer.uid);
            return self.turn_away(socket, &conduct);
        }
        let conduct = loop {
            let found = self.places().find(peer.pid, peer.uid, peer.is_other(), Instant::now());
            match found {
                Found::Place(conduct) => break conduct,
                Found::Later(wait) => std::thread::sleep(wait),
                Found::Nothing(conduct, why) => {
                    conduct.note(why);
                    return self.turn_away(socket, &conduct);
                }
            }
        };
        let place = Arc::new(Place {
            pid: peer.pid,
            uid: peer.uid,
            since: Instant::now(),
            state: AtomicU8::new(state::SILENT),
            line: OnceLock::new(),
            conduct,
        });
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        log::debug!("connection {number} of process {} (user {})", peer.pid, peer.uid);
        self.places().places.push(Arc::downgrade(&place));
        let door = door.and_then(|door| door.vm.clone());
        let started = Porter::new(number, socket, (peer, door), owner, place).and_then(|porter| {
            std::thread::Builder::new().name("porter".to_owned()).stack_size(STACK).spawn(move || {
                jail::enter(Role::Porter);
                porter.run();
            })
        });
        if let Err(error) = started {
            log::error!("a backend could not be taken in: {error}");
        }
    }

    /// Closes a connection that gets no place. What lies in it may take as long as its sender likes.
    fn turn_away(&self, socket: OwnedFd, conduct: &Conduct) {
        // Nothing more can be sent to it.
        let _ = rustix::net::shutdown(&socket, Shutdown::Read);
        while conduct.closing.backlog() >= MOST_UNCLOSED && !self.inner.ends.load(Ordering::Relaxed) {
            std::thread::sleep(GRACE);
        }
        conduct.closing.give_up(socket);
    }

    /// Opens it: accepts whoever comes by these doors, until the result is dropped.
    ///
    /// # Errors
    /// Out of descriptors or threads.
    pub fn open(&self, doors: Vec<Door>, owner: ServiceRemote) -> io::Result<OpenGate> {
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (gate, stopped) = (self.clone(), Arc::clone(&stop));
        let accept = move || {
            jail::enter(Role::Gate);
            gate.accept(&doors, &owner, &stopped);
        };
        let thread = std::thread::Builder::new().name("gate".to_owned()).spawn(accept)?;
        Ok(OpenGate { gate: self.clone(), stop, thread: Some(thread) })
    }

    fn accept(&self, doors: &[Door], owner: &ServiceRemote, stop: &OwnedFd) {
        loop {
            let listening = doors.iter().map(|door| PollFd::new(door.listener.socket(), PollFlags::IN));
            let mut fds: Vec<_> =
                std::iter::once(PollFd::new(stop, PollFlags::IN)).chain(listening).collect();
            let _ = poll(&mut fds, None);
            let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            if fds.first().is_some_and(ready) {
                return;
            }
            for (door, _) in doors.iter().zip(fds.iter().skip(1)).filter(|(_, fd)| ready(fd)) {
                match door.listener.accept() {
                    Ok(Some(socket)) => self.admit(socket, Some(door), owner.clone()),
                    Ok(None) => {}
                    Err(error) => {
                        log::error!("a backend could not connect, trying again: {error}");
                        let pause = Timespec::try_from(ACCEPT_PAUSE).ok();
                        let _ = poll(&mut [PollFd::new(stop, PollFlags::IN)], pause.as_ref());
                    }
                }
            }
        }
    }
}

/// An open gate. Dropping it closes the listening sockets.
#[derive(Debug)]
pub(super) struct OpenGate {
    gate: Gate,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for OpenGate {
    fn drop(&mut self) {
        self.gate.inner.ends.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that accepts connections broke down");
        }
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

        /// True if it gets in.
        fn come(&mut self, pid: i32, uid: u32) -> bool {
            let Found::Place(conduct) = self.places.find(pid, uid, true, self.now) else { return false };
            let place = Arc::new(Place {
                pid,
                uid,
                since: self.now,
                state: AtomicU8::new(state::SILENT),
                line: OnceLock::new(),
                conduct,
            });
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
                place.asks();
            }
        });
        assert!(!street.come(301, 7), "nobody of that user is silent");
    }

    #[test]
    fn connections_that_cannot_be_closed_count_against_their_user_alone() {
        let mut street = Street::new();
        for pid in 0..i32::try_from(MOST_OF_USER).unwrap() {
            assert!(street.come(pid, 7));
            street.taken.last().unwrap().closes();
        }
        assert!(!street.come(99, 7));
        assert!(street.come(100, 8));
        street.taken.remove(0);
        assert!(street.come(99, 7), "one is closed at last");
    }
}
