//! The gate: accepts connections of device backends, and gives each a porter.
//!
//! Until a connection is a tenant it has a place among unadmitted connections ([`super::places`]). Those for
//! which none is free wait, each user's for themselves ([`super::waiting`]). The aggregator's own thread
//! hears of a connection with its hello.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;

use super::commands::Commands;
use super::peer::Peer;
use super::places::{Found, GRACE, Misbehaviour, Place, Places};
use super::porter::Porter;
use super::waiting::{Newcomer, PATIENCE, Waiting};
use crate::protocol::{RefusalKind, Reply};
use crate::{seqpacket, wire};
use gpuvmk_host::socket_path::Listener;
use gpuvmk_host::urgency;
use gpuvmk_jail::{self as jail, Role};

/// Wait after a failed `accept`: it fails for want of descriptors or memory, which does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limit of a user's refused connections that are not closed yet. Above it no connection is accepted.
const MOST_UNCLOSED: usize = 4096;

/// Shortest wait of a newcomer before it tries again.
const TICK: Duration = Duration::from_millis(1);

/// Room on a porter's stack.
const STACK: usize = 256 << 10;

/// A socket at which back ends connect.
#[derive(Debug)]
pub(crate) struct Door {
    pub listener: Listener,
    /// The VM whose own it is; `None`: everybody's.
    pub vm: Option<String>,
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

    /// Number of protocol violations by unadmitted connections, of all users that are remembered.
    pub fn refusals(&self) -> u64 {
        let count = |misbehaviour: &Arc<Misbehaviour>| misbehaviour.count.load(Ordering::Relaxed);
        self.places().misbehaviours.values().map(count).fold(0, u64::saturating_add)
    }

    /// Gives a connection that came by no door a porter, if there is a place. Waits for one.
    pub fn admit(&self, socket: OwnedFd, owner: &Commands) {
        let Some(mut newcomer) = self.judge(socket, None) else { return };
        while let Some((again, wait)) = self.place(newcomer, owner) {
            std::thread::sleep(wait);
            newcomer = again;
        }
    }

    /// Finds out who is at the other end, and turns away who may not come by this door.
    fn judge(&self, socket: OwnedFd, door: Option<&Door>) -> Option<Newcomer> {
        let peer = match Peer::of(&socket) {
            Ok(peer) => peer,
            Err(error) => {
                let misbehaviour = self.places().misbehaviour(u32::MAX);
                misbehaviour.note(&format!("it is not known who it is: {error}"));
                self.turn_away(socket, &misbehaviour);
                return None;
            }
        };
        if let Some(door) = door
            && let Err(refused) = door.listener.guard().judge(&peer.credentials())
        {
            let reply = Reply::Refused { kind: RefusalKind::Name, message: refused.to_string() };
            let mut bytes = Vec::new();
            wire::encode_reply(&reply, &mut bytes);
            // A peer that does not read is not waited for.
            let _ = seqpacket::send(&socket, &bytes, &[], true);
            let misbehaviour = self.places().misbehaviour(peer.uid);
            self.turn_away(socket, &misbehaviour);
            return None;
        }
        Some(Newcomer { socket, peer, vm: door.and_then(|door| door.vm.clone()), since: Instant::now() })
    }

    /// Gives a newcomer a porter, or turns it away, or returns it with the time after which it is to try
    /// again.
    fn place(&self, newcomer: Newcomer, owner: &Commands) -> Option<(Newcomer, Duration)> {
        let (peer, now) = (&newcomer.peer, Instant::now());
        let found = self.places().find(peer.pid, peer.uid, peer.is_other(), now);
        let misbehaviour = match found {
            Found::Place(misbehaviour) => misbehaviour,
            Found::Later(_, wait) if now.saturating_duration_since(newcomer.since) < PATIENCE => {
                return Some((newcomer, wait));
            }
            Found::Later(misbehaviour, _) => {
                self.refuse(newcomer, &misbehaviour, "no place was free for too long");
                return None;
            }
            Found::Nothing(misbehaviour, why) => {
                self.refuse(newcomer, &misbehaviour, why);
                return None;
            }
        };
        let Newcomer { socket, peer, vm, .. } = newcomer;
        let place = Arc::new(Place::new(peer.pid, peer.uid, now, misbehaviour));
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        log::debug!("connection {number} of process {} (user {})", peer.pid, peer.uid);
        self.places().places.push(Arc::downgrade(&place));
        let started = Porter::new(number, socket, (peer, vm), owner.clone(), place).and_then(|porter| {
            std::thread::Builder::new().name("porter".to_owned()).stack_size(STACK).spawn(move || {
                jail::enter(Role::Porter);
                porter.run();
            })
        });
        if let Err(error) = started {
            log::error!("a backend could not be taken in: {error}");
        }
        None
    }

    fn refuse(&self, newcomer: Newcomer, misbehaviour: &Misbehaviour, why: &str) {
        misbehaviour.note(why);
        self.turn_away(newcomer.socket, misbehaviour);
    }

    /// Closes a connection that gets no place. Closing the files in it may take as long as the sender
    /// arranged.
    fn turn_away(&self, socket: OwnedFd, misbehaviour: &Misbehaviour) {
        // Nothing more can be sent to it.
        let _ = rustix::net::shutdown(&socket, Shutdown::Read);
        while misbehaviour.closing.backlog() >= MOST_UNCLOSED && !self.inner.ends.load(Ordering::Relaxed) {
            std::thread::sleep(GRACE);
        }
        misbehaviour.closing.give_up(socket);
    }

    /// Opens the gate: accepts connections at these doors, until the result is dropped.
    ///
    /// # Errors
    /// Out of descriptors or threads.
    pub fn open(&self, doors: Vec<Door>, owner: Commands) -> io::Result<OpenGate> {
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (gate, stopped) = (self.clone(), Arc::clone(&stop));
        let accept = move || {
            // Porters have them from this thread: back ends wait for them as for the owner's.
            urgency::request_short_slices();
            jail::enter(Role::Gate);
            gate.accept(&doors, &owner, &stopped);
        };
        let thread = std::thread::Builder::new().name("gate".to_owned()).spawn(accept)?;
        Ok(OpenGate { gate: self.clone(), stop, thread: Some(thread) })
    }

    fn accept(&self, doors: &[Door], owner: &Commands, stop: &OwnedFd) {
        let mut waiting = Waiting::default();
        loop {
            let listening = doors.iter().map(|door| PollFd::new(door.listener.socket(), PollFlags::IN));
            let mut fds: Vec<_> =
                std::iter::once(PollFd::new(stop, PollFlags::IN)).chain(listening).collect();
            let left = waiting.left(Instant::now()).map(|left| left.max(TICK));
            let _ = poll(&mut fds, left.and_then(|left| Timespec::try_from(left).ok()).as_ref());
            let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            if fds.first().is_some_and(ready) {
                return;
            }
            for (door, _) in doors.iter().zip(fds.iter().skip(1)).filter(|(_, fd)| ready(fd)) {
                match door.listener.accept() {
                    Ok(Some(socket)) => self.come(socket, door, &mut waiting),
                    Ok(None) => {}
                    Err(error) => {
                        log::error!("a backend could not connect, trying again: {error}");
                        let pause = Timespec::try_from(ACCEPT_PAUSE).ok();
                        let _ = poll(&mut [PollFd::new(stop, PollFlags::IN)], pause.as_ref());
                    }
                }
            }
            let now = Instant::now();
            while let Some(newcomer) = waiting.pop(now) {
                if let Some((newcomer, wait)) = self.place(newcomer, owner) {
                    waiting.put_back(newcomer, now + wait.max(TICK));
                }
            }
        }
    }

    /// A connection that was accepted waits for its turn.
    fn come(&self, socket: OwnedFd, door: &Door, waiting: &mut Waiting) {
        let Some(newcomer) = self.judge(socket, Some(door)) else { return };
        if let Err((newcomer, why)) = waiting.push(newcomer, Instant::now()) {
            let misbehaviour = self.places().misbehaviour(newcomer.peer.uid);
            self.refuse(*newcomer, &misbehaviour, why);
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
