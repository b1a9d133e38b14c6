//! The tenant's end of a connection to the aggregator: requests through a mailbox or a socket, doorbells and
//! events through shared memory. Used across processes and, over a socket pair, within one.
//!
//! Threads: requests run on the caller's thread, one at a time. After [`AggregatorLink::connect`], the thread
//! `aggregator-events` delivers events; it ends when the aggregator does or the link is dropped.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::doorbells::DoorbellSender;
use super::event_ring::{EventConsumer, Notifications, Woken};
use super::link::{AggregatorLink, Deferred, EventHandler, Grant, LinkError};
use super::mailbox::Found;
use super::protocol::{Doorbell, Hello, Reply, Request, Welcome};
use super::report::Report;
use super::seqpacket::{self, Received};
use super::service::ServiceHandle;
use super::wire;
use gpuvmk_backend::{EngineTime, InterruptInterest};
use gpuvmk_control_client::DriverCounters;
use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_host::cancel::{Cancel, Waited};
use gpuvmk_jail::{self as jail, Role};
use gpuvmk_pci::SharedMemory;

/// How often an absent aggregator is looked for.
const RETRY: Duration = Duration::from_millis(100);

/// How long an answer may take that is waited for without sleeping, where there are CPUs to spare.
const SHORT_ANSWER: Duration = Duration::from_micros(200);

/// How long to look for an aggregator that is not there, and for its answers.
#[derive(Clone, Debug)]
pub struct LinkTimeouts {
    /// Give up after this; `None`: never.
    pub limit: Option<Duration>,
    /// Give up when this order is given, here and in every request to come.
    pub cancel: Cancel,
    /// How long to look for an answer before sleeping, zero where every CPU is needed. Other requests than
    /// the longest go through the mailbox then, which costs no system call.
    pub awake: Duration,
}

impl LinkTimeouts {
    /// Do not wait for it at all.
    pub fn none() -> Self {
        Self { limit: Some(Duration::ZERO), ..Self::until(Cancel::default()) }
    }

    /// Wait until it appears or the order to end is given.
    pub fn until(cancel: Cancel) -> Self {
        let awake = if gpuvmk_host::processors::to_spare() { SHORT_ANSWER } else { Duration::ZERO };
        Self { limit: None, cancel, awake }
    }
}

/// Connects to the aggregator at `path`, waiting for it to appear as `timeouts` allows.
///
/// # Errors
/// It refused, is not there, or went away.
pub fn connect(
    path: &Path,
    hello: Hello,
    timeouts: &LinkTimeouts,
) -> Result<(Arc<dyn AggregatorLink>, Grant), LinkError> {
    let started = Instant::now();
    let mut told = false;
    loop {
        if timeouts.cancel.is_cancelled() {
            return Err(ending());
        }
        match gpuvmk_host::socket_path::connect_trusted(path, SocketType::SEQPACKET) {
            Ok(socket) => return handshake(socket, hello, timeouts),
            Err(error) => {
                let worth =
                    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
                let over = timeouts.limit.is_some_and(|limit| started.elapsed() >= limit);
                if !worth || over {
                    return Err(LinkError::Lost(format!("{}: {error}", path.display())));
                }
                if !std::mem::replace(&mut told, true) {
                    log::info!("waiting for an aggregator at {}: {error}", path.display());
                }
                timeouts.cancel.sleep(RETRY);
            }
        }
    }
}

/// Connects to an aggregator that runs in this process.
///
/// # Errors
/// It refused, or has ended.
pub fn connect_in_process(
    service: &ServiceHandle,
    hello: Hello,
) -> Result<(Arc<dyn AggregatorLink>, Grant), LinkError> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|errno| lost(&errno))?;
    service.remote().adopt(theirs);
    handshake(ours, hello, &LinkTimeouts::none())
}

fn lost(error: &dyn std::fmt::Display) -> LinkError {
    LinkError::Lost(error.to_string())
}

/// No one waits for an answer any more. The aggregator takes everything back when the connection closes.
fn ending() -> LinkError {
    LinkError::Lost("this side is to end".to_owned())
}

fn handshake(
    socket: OwnedFd,
    hello: Hello,
    timeouts: &LinkTimeouts,
) -> Result<(Arc<dyn AggregatorLink>, Grant), LinkError> {
    let mut exchange = Exchange::new(socket, timeouts);
    let mut files = Vec::new();
    if let Err(lost) = exchange.send(&Request::Hello(hello), None) {
        // A refusal is sent before the aggregator hangs up.
        return match exchange.receive(&mut files) {
            Ok(Reply::Refused { kind, message }) => Err(LinkError::Refused { kind, message }),
            Ok(_) | Err(_) => Err(lost),
        };
    }
    // The answer may take until another tenant's resources are free.
    let welcome = match exchange.receive(&mut files)? {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused { kind, message } => return Err(LinkError::Refused { kind, message }),
        Reply::Done => return Err(LinkError::Lost("it answers hello with something else".to_owned())),
    };
    let mut files = files.into_iter();
    let mut next = || files.next().ok_or_else(|| LinkError::Lost("its welcome lacks files".to_owned()));
    let (board, bell, ring, pipe) = (next()?, next()?, next()?, next()?);
    let doorbells = DoorbellSender::open(board.as_fd(), bell).map_err(|error| lost(&error))?;
    let events = EventConsumer::open(ring.as_fd(), pipe).map_err(|error| lost(&error))?;
    let grant = grant(&welcome, next)?;
    let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| lost(&errno))?;
    let link = SocketLink {
        exchange: Mutex::new(exchange),
        doorbells,
        notifications: events.notifications(),
        events: Mutex::new(EventThread::Idle(Box::new(events))),
        stop: Arc::new(stop),
        cancel: timeouts.cancel.clone(),
    };
    Ok((Arc::new(link), grant))
}

fn grant(
    welcome: &Welcome,
    mut next: impl FnMut() -> Result<OwnedFd, LinkError>,
) -> Result<Grant, LinkError> {
    let window = welcome
        .window
        .iter()
        .map(|(offset, size)| Ok(SharedMemory { fd: next()?, offset: *offset, size: *size }))
        .collect::<Result<Vec<_>, LinkError>>()?;
    Ok(Grant {
        vram: welcome.vram,
        channels: welcome.channels,
        spaces: welcome.spaces,
        engines: welcome.engines,
        va_bits: welcome.va_bits,
        page_shifts: welcome.page_shifts.clone(),
        slow_vram_reads: welcome.slow_vram_reads,
        texture_clusters: welcome.texture_clusters,
        window,
    })
}

/// The socket, and the buffers of the request that is on its way.
#[derive(Debug)]
struct Exchange {
    socket: OwnedFd,
    out: Vec<u8>,
    back: Vec<u8>,
    /// How long to look for an answer before sleeping. Without any, the mailbox is of no use.
    awake: Duration,
    /// Ends every wait.
    cancel: Cancel,
}

impl Exchange {
    fn new(socket: OwnedFd, timeouts: &LinkTimeouts) -> Self {
        let LinkTimeouts { awake, cancel, .. } = timeouts.clone();
        Self { socket, out: Vec::new(), back: vec![0; wire::MAX_REPLY_BYTES], awake, cancel }
    }

    fn send(&mut self, request: &Request, file: Option<&OwnedFd>) -> Result<(), LinkError> {
        wire::encode_request(request, &mut self.out);
        self.send_encoded(file)
    }

    fn send_encoded(&self, file: Option<&OwnedFd>) -> Result<(), LinkError> {
        let files: Vec<_> = file.into_iter().map(AsFd::as_fd).collect();
        seqpacket::send(&self.socket, &self.out, &files, false).map_err(|error| lost(&error))
    }

    fn receive(&mut self, files: &mut Vec<OwnedFd>) -> Result<Reply, LinkError> {
        loop {
            let waited =
                self.cancel.wait_readable(self.socket.as_fd(), None).map_err(|error| lost(&error))?;
            if waited == Waited::Cancelled {
                return Err(ending());
            }
            let received = seqpacket::receive(&self.socket, &mut self.back, files, true);
            return match received.map_err(|error| lost(&error))? {
                Received::Nothing => continue,
                Received::End => Err(LinkError::Lost("it closed the connection".to_owned())),
                Received::Datagram(length) => self.decode(length),
            };
        }
    }

    fn decode(&self, length: usize) -> Result<Reply, LinkError> {
        wire::decode_reply(self.back.get(..length).unwrap_or_default()).map_err(|error| lost(&error))
    }

    /// Asks through the mailbox if that makes sense, else through the socket.
    fn ask(
        &mut self,
        request: &Request,
        file: Option<&OwnedFd>,
        doorbells: &DoorbellSender,
    ) -> Result<Reply, LinkError> {
        wire::encode_request(request, &mut self.out);
        if self.cancel.is_cancelled() {
            return Err(ending());
        }
        if file.is_some() || self.awake.is_zero() || !doorbells.ask(&self.out) {
            self.send_encoded(file)?;
            return self.receive(&mut Vec::new());
        }
        // Most answers come sooner than this thread would wake up from a sleep.
        let awake_until = Instant::now() + self.awake;
        let mailbox = doorbells.mailbox();
        let mut found = Found::Nothing;
        while found == Found::Nothing && Instant::now() < awake_until {
            std::hint::spin_loop();
            found = mailbox.look(&mut self.back);
        }
        if found == Found::Nothing {
            if mailbox.sleep() {
                return self.receive(&mut Vec::new());
            }
            // It has come just now.
            found = mailbox.look(&mut self.back);
        }
        match found {
            Found::Answer(length) => self.decode(length),
            Found::AtSocket => self.receive(&mut Vec::new()),
            Found::Nothing => Err(LinkError::Lost("its mailbox is in no known state".to_owned())),
        }
    }
}

/// Where the events go.
#[derive(Debug)]
enum EventThread {
    /// No handler is connected.
    Idle(Box<EventConsumer>),
    /// A handler is connected; the thread that calls it.
    Running(JoinHandle<()>),
    /// The thread could not be started, or has been waited for.
    Ended,
}

/// A connection to an aggregator.
#[derive(Debug)]
struct SocketLink {
    exchange: Mutex<Exchange>,
    doorbells: DoorbellSender,
    notifications: Notifications,
    events: Mutex<EventThread>,
    stop: Arc<OwnedFd>,
    cancel: Cancel,
}

impl AggregatorLink for SocketLink {
    fn request(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError> {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        match exchange.ask(request, file.as_ref(), &self.doorbells)? {
            Reply::Done => Ok(()),
            Reply::Refused { kind, message } => Err(LinkError::Refused { kind, message }),
            Reply::Welcome(_) => Err(LinkError::Lost("it answers with something else".to_owned())),
        }
    }

    fn is_ending(&self) -> bool {
        self.cancel.is_cancelled()
    }

    fn doorbell(&self, doorbell: Doorbell) {
        self.doorbells.ring(doorbell);
    }

    fn report(&self, report: &Report) {
        self.doorbells.report(report);
    }

    fn report_copied(&self, copied: &CopiedBytes) {
        self.doorbells.report_copied(copied);
    }

    fn report_trapped(&self, accesses: u64) {
        self.doorbells.report_trapped(accesses);
    }

    fn report_driver(&self, counters: &DriverCounters) {
        self.doorbells.report_driver(counters);
    }

    fn set_notification_interest(&self, interest: InterruptInterest) -> Deferred {
        self.notifications.interest(interest)
    }

    fn take_notifications(&self) -> Deferred {
        self.notifications.take()
    }

    fn engine_time(&self) -> EngineTime {
        self.notifications.engine_time()
    }

    fn connect(&self, handler: Arc<dyn EventHandler>) {
        let mut thread = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *thread, EventThread::Ended) {
            EventThread::Idle(events) => {
                let stop = Arc::clone(&self.stop);
                let spawned =
                    std::thread::Builder::new().name("aggregator-events".to_owned()).spawn(move || {
                        jail::enter(Role::Events);
                        deliver(*events, &stop, &*handler);
                    });
                match spawned {
                    Ok(running) => *thread = EventThread::Running(running),
                    Err(error) => log::error!("events of the aggregator cannot be received: {error}"),
                }
            }
            running => {
                log::error!("the aggregator's events have a receiver already");
                *thread = running;
            }
        }
    }
}

impl Drop for SocketLink {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        let thread = self.events.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let EventThread::Running(running) = std::mem::replace(thread, EventThread::Ended)
            // The receiver may hold the last reference to the link.
            && running.thread().id() != std::thread::current().id()
            && running.join().is_err()
        {
            log::error!("the thread of the aggregator's events broke down");
        }
    }
}

fn deliver(mut events: EventConsumer, stop: &OwnedFd, handler: &dyn EventHandler) {
    let stopped = || {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(stop, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&now)), Ok(1..))
    };
    loop {
        events.take(|event| handler.event(event));
        match events.wait(stop.as_fd()) {
            Ok(Woken::Events) => {}
            Ok(Woken::Ended) => {
                // Its last events come first.
                events.take(|event| handler.event(event));
                if !stopped() {
                    handler.lost("it ended, or closed the connection");
                }
                return;
            }
            Err(error) => {
                handler.lost(&format!("its events cannot be received: {error}"));
                return;
            }
        }
        if stopped() {
            return;
        }
    }
}
