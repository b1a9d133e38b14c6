//! The thread that serves viewers: one for all of a head's.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpuvmk_host::pace::Pace;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::counts::ViewerCounts;
use super::input::ViewerInput;
use super::viewer::{Gone, Limits, Viewer};
use crate::source::{FrameSource, Looking, Wake};

/// How long nobody is let in after that has failed, as when there are no descriptors left.
const REFUSED: Duration = Duration::from_secs(1);

/// What a server is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What viewers show as the screen's name.
    pub name: String,
    /// Most viewers at a time.
    pub viewers: usize,
    /// How long a viewer may take to say what it wants.
    pub greeting: Duration,
    /// How long a viewer may take nothing while there is something for it.
    pub stalled: Duration,
    /// With what the thread begins, as where it gives rights up.
    pub begin: fn(),
}

impl Settings {
    /// Eight viewers, ten seconds to greet, a minute to read.
    pub fn new(name: &str) -> Self {
        let (greeting, stalled) = (Duration::from_secs(10), Duration::from_secs(60));
        Self { name: name.to_owned(), viewers: 8, greeting, stalled, begin: || {} }
    }
}

/// A server of a head's pictures. Its thread and all connections end when this goes.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What others tell the thread.
#[derive(Debug)]
struct Shared {
    /// Readable when there is something to see.
    event: OwnedFd,
    stop: AtomicBool,
    counts: ViewerCounts,
}

impl Shared {
    fn wake(&self) {
        // The counter is far from full.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl Server {
    /// Serves viewers that come to `listener`.
    ///
    /// # Errors
    /// There is no thread or descriptor to be had.
    pub fn start(
        listener: UnixListener,
        source: Arc<dyn FrameSource>,
        input: Box<dyn ViewerInput>,
        settings: Settings,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let counts = ViewerCounts::default();
        let shared = Arc::new(Shared { event, stop: AtomicBool::new(false), counts });
        let of_thread = Arc::clone(&shared);
        let limits = Limits { greeting: settings.greeting, stalled: settings.stalled };
        let service = Service {
            listener,
            source,
            input,
            settings,
            limits,
            shared: of_thread,
            viewers: Vec::new(),
            looking: None,
            start: Instant::now(),
            served: Duration::ZERO,
            closed_until: Duration::ZERO,
            pace: Pace::new(1, Duration::from_secs(10)),
        };
        let run = move || {
            (service.settings.begin)();
            service.run();
        };
        let thread = std::thread::Builder::new().name("display-viewers".to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What it did so far.
    pub fn counts(&self) -> &ViewerCounts {
        &self.shared.counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// What the thread works with.
struct Service {
    listener: UnixListener,
    source: Arc<dyn FrameSource>,
    input: Box<dyn ViewerInput>,
    settings: Settings,
    limits: Limits,
    shared: Arc<Shared>,
    viewers: Vec<Viewer>,
    /// While a viewer wants a picture.
    looking: Option<Box<dyn Looking>>,
    start: Instant,
    /// When viewers were last served.
    served: Duration,
    /// Nobody is let in until then.
    closed_until: Duration,
    /// How often the log says who was let go.
    pace: Pace,
}

impl Service {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn run(mut self) {
        let (mut more, mut told) = (false, (0, 0));
        loop {
            let ready = match self.wait(more) {
                Ok(ready) => ready,
                Err(error) => return log::error!("Nobody can look at {}: {error}", self.settings.name),
            };
            if self.shared.stop.load(Ordering::Acquire) {
                return;
            }
            let now = self.now();
            more = self.serve(&ready, now);
            self.served = now;
            more |= self.accept(now);
            let counts = &self.shared.counts;
            let there = (self.viewers.len(), counts.came.get() + counts.too_many.get());
            if there != told {
                told = there;
                self.input.viewers(there.0, counts);
            }
        }
    }

    /// Waits until there is something to do: what was found of each viewer's socket comes back.
    fn wait(&self, more: bool) -> io::Result<Vec<PollFlags>> {
        let now = self.now();
        let mut fds = vec![PollFd::new(&self.shared.event, PollFlags::IN)];
        let is_open = now >= self.closed_until;
        fds.push(PollFd::new(&self.listener, if is_open { PollFlags::IN } else { PollFlags::empty() }));
        fds.extend(
            self.viewers.iter().map(|viewer| PollFd::from_borrowed_fd(viewer.fd(), viewer.interest())),
        );
        let deadlines = self.viewers.iter().filter_map(|viewer| viewer.deadline(self.limits));
        // One that was past when viewers were served is of somebody who waits for a picture.
        let deadlines = deadlines.filter(|deadline| *deadline > self.served);
        let next = deadlines.chain((!is_open).then_some(self.closed_until)).min();
        let wait = if more { Some(Duration::ZERO) } else { next.map(|next| next.saturating_sub(now)) };
        // Rounded up, so that the time has come when the wait ends.
        let wait = wait.map(|wait| wait + Duration::from_nanos(u64::from(!wait.is_zero())));
        let timespec = wait.and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut fds, timespec.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
            let mut count = [0; 8];
            // It was readable, and is read by nobody else.
            let _ = rustix::io::read(&self.shared.event, &mut count);
        }
        Ok(fds.iter().skip(2).map(PollFd::revents).collect())
    }

    /// Reads from and writes to all viewers. True if there is more to write.
    fn serve(&mut self, ready: &[PollFlags], now: Duration) -> bool {
        let mut gone = Vec::new();
        for (at, (viewer, ready)) in self.viewers.iter_mut().zip(ready).enumerate() {
            if let Err(why) = viewer.receive(*ready, &*self.input, now) {
                gone.push((at, why));
            }
        }
        self.let_go(gone);
        if !self.viewers.iter().any(Viewer::wants_picture) {
            self.looking = None;
        } else if self.looking.is_none() {
            let shared = Arc::clone(&self.shared);
            let wake: Wake = Arc::new(move || shared.wake());
            self.looking = Some(self.source.look(wake));
        }
        let picture = self.looking.as_ref().and_then(|looking| looking.latest());
        let (mut more, mut gone) = (false, Vec::new());
        for (at, viewer) in self.viewers.iter_mut().enumerate() {
            match viewer.send(picture.as_deref(), self.limits, &self.shared.counts, now) {
                Ok(again) => more |= again,
                Err(why) => gone.push((at, why)),
            }
        }
        self.let_go(gone);
        more
    }

    /// Ends connections, which are named in the order of viewers.
    fn let_go(&mut self, gone: Vec<(usize, Gone)>) {
        let (counts, now) = (&self.shared.counts, self.start.elapsed());
        for (at, why) in gone.into_iter().rev() {
            match why {
                Gone::Fault(_) => counts.faults.one(),
                Gone::Greeting | Gone::Stalled => counts.too_slow.one(),
                Gone::Closed | Gone::Socket(_) => {}
            }
            if !matches!(why, Gone::Closed) && self.pace.allows(now) {
                log::info!("A viewer of {} is let go: {why}", self.settings.name);
            }
            self.viewers.swap_remove(at);
        }
    }

    /// Lets in who waits. True if somebody came.
    fn accept(&mut self, now: Duration) -> bool {
        if now < self.closed_until {
            return false;
        }
        let before = self.viewers.len();
        // No more in one turn than there may be.
        for _ in 0..=self.settings.viewers {
            match rustix::net::accept_with(
                self.listener.as_fd(),
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            ) {
                Ok(_) if self.viewers.len() >= self.settings.viewers => self.shared.counts.too_many.one(),
                Ok(socket) => {
                    self.shared.counts.came.one();
                    self.viewers.push(Viewer::new(socket, &self.settings.name, now));
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => break,
                Err(error) => {
                    log::warn!("A viewer of {} cannot be let in: {error}", self.settings.name);
                    self.closed_until = now + REFUSED;
                    break;
                }
            }
        }
        self.viewers.len() > before
    }
}
