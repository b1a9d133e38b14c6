//! Waits for back ends end by the clock: `vhost` waits for an answer as long as it takes, so a thread of ours
//! shuts the socket of one that is late, and the wait ends with it. It serves all back ends of a process.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpuvmk_jail::{self as jail, Role};

/// How long a step of a back end's may take, such as the start of all queues: one on a busy or emulated host
/// is slow.
pub const STEP_LIMIT: Duration = Duration::from_secs(5);

/// A socket that is shut at a time.
#[derive(Debug)]
struct Entry {
    number: u64,
    at: Instant,
    socket: UnixStream,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    next: u64,
    end: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.state();
        while !state.end {
            let now = Instant::now();
            // A shut socket stays in the list until whoever waits for it takes it out: shut once more, no
            // harm.
            state.entries.iter().filter(|entry| entry.at <= now).for_each(|entry| {
                let _ = entry.socket.shutdown(Shutdown::Both);
            });
            let next = state.entries.iter().map(|entry| entry.at).filter(|at| *at > now).min();
            state = match next {
                Some(at) => {
                    let wait = self.changed.wait_timeout(state, at - now);
                    wait.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// The thread that ends waits.
#[derive(Debug)]
pub struct Deadlines {
    limit: Duration,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A wait that ends by the clock, as long as this lives.
#[derive(Debug)]
pub(super) struct Limited {
    shared: Arc<Shared>,
    number: u64,
}

impl Deadlines {
    /// Starts the thread. A step may take as long as `limit`: [`STEP_LIMIT`] where nothing speaks for
    /// another.
    ///
    /// # Errors
    /// The host has none.
    pub fn start(limit: Duration) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("back-end-clock".to_owned()).spawn(move || {
            jail::enter(Role::BackEndClock);
            own.serve();
        })?;
        Ok(Arc::new(Self { limit, shared, thread: Some(thread) }))
    }

    /// Shuts `socket` when a step's time is up, unless the result is dropped before.
    pub(super) fn limit(&self, socket: &UnixStream) -> io::Result<Limited> {
        let socket = socket.try_clone()?;
        let mut state = self.shared.state();
        let number = state.next;
        state.next = number.wrapping_add(1);
        state.entries.push(Entry { number, at: Instant::now() + self.limit, socket });
        drop(state);
        self.shared.changed.notify_one();
        Ok(Limited { shared: Arc::clone(&self.shared), number })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let entry = {
            let mut state = self.shared.state();
            let place = state.entries.iter().position(|entry| entry.number == self.number);
            place.map(|place| state.entries.swap_remove(place))
        };
        // Closed by whoever waited, and not under the lock.
        drop(entry);
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        self.shared.state().end = true;
        self.shared.changed.notify_one();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            log::error!("The back ends' clock ended by a panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn wait_ends_when_its_time_is_up_and_not_before() {
        let start = |limit| Deadlines::start(limit).unwrap();
        let (short, long) = (start(Duration::from_millis(20)), start(Duration::from_secs(3600)));
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        let (mut kept, mut other) = UnixStream::pair().unwrap();
        let long = long.limit(&kept).unwrap();
        let limited = short.limit(&ours).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        drop((limited, long));
        io::Write::write_all(&mut other, &[7]).unwrap();
        let mut byte = [0];
        kept.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
    }
}
