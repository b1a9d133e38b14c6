//! Tells clients that come while another one has the device that it is taken: at once, and not never. QEMU
//! waits for an answer to its first message with its lock held, so without one its machine would stand still.
//!
//! A client that is gone no longer has the device, even if its session has not ended yet: the next client
//! waits in the listen queue. A killed process may still be exiting when the next client comes, so newcomers
//! wait up to [`GRACE`].

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use zerocopy::FromBytes;

use super::framing::Outbox;
use super::session::Peer;
use super::stop::StopHandle;
use super::sys::{self, Wait};
use super::wire::Header;
use gpuvmk_host::cancel::Waited;
use gpuvmk_host::socket_path::Listener;
use gpuvmk_jail::{self as jail, Role};

/// How long a newcomer waits for the end of a client that still seems to be there. QEMU itself waits for 5 s.
const GRACE: Duration = Duration::from_millis(250);

/// How long a newcomer may take to say its first message, in all.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much of the first message is read, at most; QEMU's has some hundred bytes.
const MOST: usize = 4096;

/// Wait after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// One line of the log in this time; more are counted.
const LOG_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
enum State {
    /// The server takes the next client itself.
    #[default]
    Free,
    /// The session of that number is served.
    Taken(u64, Arc<UnixStream>),
    /// There is no server any more.
    Closed,
}

/// Tracks which session has the device.
#[derive(Debug, Default)]
pub(super) struct Door {
    state: Mutex<State>,
    changed: Condvar,
}

impl Door {
    /// Starts the thread that answers at `listener` while the door is taken. It ends when the server does.
    pub(super) fn keep(self: &Arc<Self>, listener: Listener, stop: &StopHandle) -> io::Result<()> {
        let (door, stop) = (Arc::clone(self), stop.clone());
        std::thread::Builder::new().name("door".to_owned()).spawn(move || {
            jail::enter(Role::Door);
            Keeper { door, listener, stop, turned_away: 0, logged: None }.run();
        })?;
        Ok(())
    }

    /// From now on `session` has the device.
    pub(super) fn take(&self, number: u64, session: &Arc<UnixStream>) {
        self.set(State::Taken(number, Arc::clone(session)));
    }

    /// The server takes the next client itself.
    pub(super) fn free(&self) {
        self.set(State::Free);
    }

    /// The server is gone.
    pub(super) fn close(&self) {
        self.set(State::Closed);
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another session than `not` has the device; `None` once the server is gone.
    fn wait_taken(&self, not: Option<u64>) -> Option<(u64, Weak<UnixStream>)> {
        let mut state = self.lock();
        loop {
            match &*state {
                State::Closed => return None,
                State::Taken(number, session) if Some(*number) != not => {
                    return Some((*number, Arc::downgrade(session)));
                }
                _ => {}
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The thread's own.
struct Keeper {
    door: Arc<Door>,
    listener: Listener,
    stop: StopHandle,
    /// Clients since the last line of the log, and when that was.
    turned_away: u64,
    logged: Option<Instant>,
}

impl Keeper {
    fn run(mut self) {
        let mut gone = None;
        while let Some((number, session)) = self.door.wait_taken(gone) {
            match self.stop.cancel().wait_readable(self.listener.socket().as_fd(), None) {
                Ok(Waited::Ready) => {}
                Ok(Waited::TimedOut) => continue,
                Ok(Waited::Cancelled) => return,
                Err(error) => {
                    log::error!("Clients that come while the device is taken are not answered: {error}");
                    return;
                }
            }
            // A newcomer, if the server has not taken it in the meantime. The session's socket is not kept
            // longer than its session.
            let Some(session) = session.upgrade().filter(|session| !sys::hangs_up_within(session, GRACE))
            else {
                gone = Some(number);
                continue;
            };
            match self.accept(number) {
                Ok(Some(newcomer)) => self.turn_away(&newcomer, &session),
                Ok(None) => {}
                Err(error) => {
                    log::error!("A client cannot be accepted, trying again: {error}");
                    self.stop.cancel().sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Takes the newcomer out of the queue, unless it may have the device now.
    fn accept(&self, number: u64) -> io::Result<Option<UnixStream>> {
        // Held so that the session cannot end meanwhile.
        match &*self.door.lock() {
            State::Taken(now, session) if *now == number && !sys::has_hung_up(session) => {
                // Whom the list of users does not name learns nothing.
                Ok(self.listener.accept_allowed(|_| Vec::new())?.map(|(client, _)| UnixStream::from(client)))
            }
            _ => Ok(None),
        }
    }

    fn turn_away(&mut self, newcomer: &UnixStream, session: &UnixStream) {
        if let Some(header) = self.first_message(newcomer) {
            // That it may not hear why is its own loss.
            let _ = Outbox::refuse(newcomer, &header, libc::EBUSY);
        }
        self.turned_away += 1;
        if self.logged.is_some_and(|logged| logged.elapsed() < LOG_PAUSE) {
            return;
        }
        let (who, holder) = (Peer::of(newcomer), Peer::of(session));
        let more = match std::mem::take(&mut self.turned_away) {
            1 => String::new(),
            more => format!(" ({more} clients since the last such line)"),
        };
        log::warn!(
            "A client is turned away: process {} of user {} wants the device that process {} of user {} has{more}",
            who.pid,
            who.uid,
            holder.pid,
            holder.uid
        );
        self.logged = Some(Instant::now());
    }

    /// The header of a newcomer's first message, once all of it has come; `None` if it does not come soon.
    fn first_message(&self, newcomer: &UnixStream) -> Option<Header> {
        let until = Instant::now() + PATIENCE;
        let (mut bytes, mut said) = ([0; MOST], 0);
        loop {
            let header = bytes.get(..said).and_then(|said| Header::read_from_prefix(said).ok());
            let size =
                header.as_ref().map(|(header, _)| usize::try_from(header.size).unwrap_or(MOST).min(MOST));
            if let (Some((header, _)), true) = (header, size.is_some_and(|size| said >= size)) {
                return Some(header);
            }
            let left = until.checked_duration_since(Instant::now())?;
            match self.stop.cancel().wait_readable(newcomer.as_fd(), Some(left)) {
                Ok(Waited::Ready) => {}
                _ => return None,
            }
            // Its descriptors are not wanted.
            let mut fds = Vec::new();
            match sys::receive(newcomer, bytes.get_mut(said..)?, &mut fds, Wait::No) {
                Ok(received) if received.bytes > 0 => said += received.bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return None,
            }
        }
    }
}
