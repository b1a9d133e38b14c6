//! One client, from its first message to its last.
//!
//! States: *negotiating* (only `VERSION` is taken, and soon), *ready* (every command but `VERSION`), *dead*
//! (the value that [`serve`] returns says why). Whatever the end, the function is detached from everything
//! that belonged to the client: interrupts first, then memory. The state of the device stays.

use super::framing::{FrameError, Inbox, Message, Outbox};
use super::irq::Interrupts;
use super::poll::Poll;
use super::refusal::Refusal;
use super::stop::StopHandle;
use super::traffic::Traffic;
use super::version::{self, Agreement};
use super::wire::{Header, command, flags};
use super::{dma, info, region, sys};
use gpuvmk_host::socket_path::peer::Credentials;
use gpuvmk_pci::{InterruptSink, PciFunction, RegionTable};
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client that connects and does not negotiate keeps others waiting; QEMU does so at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// After a command that took so long, it is looked whether the client is still there.
const LONG: Duration = Duration::from_millis(50);

/// Refusals of one session that are logged one by one; more are only counted.
const LOGGED_REFUSALS: u64 = 16;

/// The process at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id, where the kernel tells it (0 from outside our process-id namespace).
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Peer {
    pub(super) fn of(socket: &UnixStream) -> Self {
        let unknown = Credentials { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let found = Credentials::of(socket).unwrap_or(unknown);
        Self { pid: found.pid, uid: found.uid, gid: found.gid }
    }
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    /// The client has closed the connection.
    #[error("The client has disconnected")]
    Closed,
    /// The server was ordered to end.
    #[error("The session was stopped")]
    Stopped,
    /// The stream broke the protocol or failed.
    #[error(transparent)]
    Stream(#[from] FrameError),
    /// The first message did not negotiate.
    #[error("The client did not negotiate: {0}")]
    Negotiation(String),
    /// A reply could not be sent.
    #[error("Sending to the client failed")]
    Send(#[source] io::Error),
}

/// Called when a client comes and goes. A function's state outlives its clients; the observer decides what to
/// do with it, for example a reset for the next one.
pub trait SessionObserver: Send + Sync {
    /// A client has negotiated; no command of it has been carried out yet.
    fn connected(&self, peer: &Peer) {
        let _ = peer;
    }

    /// A client that had negotiated is gone; its memory and interrupts are detached.
    fn disconnected(&self, end: &SessionEnd) {
        let _ = end;
    }
}

/// Ignores all calls.
impl SessionObserver for () {}

/// Binds the function to a client; dropping it unbinds.
struct Attachment<'a> {
    function: &'a dyn PciFunction,
    regions: RegionTable,
    interrupts: Interrupts,
    traffic: Traffic,
}

impl<'a> Attachment<'a> {
    fn new(function: &'a dyn PciFunction) -> Self {
        let interrupts = Interrupts::new(function);
        let sink: Arc<dyn InterruptSink> = Arc::clone(&interrupts.sink) as Arc<dyn InterruptSink>;
        function.connect_interrupts(Some(sink));
        Self { function, regions: function.regions(), interrupts, traffic: Traffic::default() }
    }

    /// If the command is one that is answered before it is carried out, makes its reply and returns true.
    fn post(&self, message: &Message<'_>, reply: &mut Outbox) -> bool {
        let Message { header, body, fds, descriptors_lost } = message;
        header.command == command::REGION_WRITE
            && header.flags & flags::TYPE_MASK == flags::COMMAND
            && fds.is_empty()
            && !descriptors_lost
            && region::post(self.function, &self.regions, body, reply)
    }

    /// Carries one command out and puts the reply together.
    fn execute(&mut self, message: Message<'_>, reply: &mut Outbox) -> Result<(), Refusal> {
        let Message { header, body, fds, descriptors_lost } = message;
        let command = header.command;
        if descriptors_lost {
            let (count, allowed) = (fds.len(), "more came than a message may bring");
            return Err(Refusal::Descriptors { command, count, allowed });
        }
        let takes_descriptors = matches!(command, command::DMA_MAP | command::DEVICE_SET_IRQS);
        if !takes_descriptors && !fds.is_empty() {
            return Err(Refusal::Descriptors { command, count: fds.len(), allowed: "it takes none" });
        }
        match command {
            command::REGION_READ => region::read(self.function, &self.regions, body, reply),
            command::REGION_WRITE => region::write(self.function, &self.regions, body, reply),
            command::REGION_WRITE_MULTI => region::write_multi(self.function, &self.regions, body, reply),
            command::DMA_MAP => dma::map(self.function, body, fds),
            command::DMA_UNMAP => dma::unmap(self.function, body, reply),
            command::DEVICE_GET_INFO => info::device(body, reply),
            command::DEVICE_GET_REGION_INFO => info::region(self.function, body, reply),
            command::DEVICE_GET_IRQ_INFO => info::irq(&self.interrupts.counts, body, reply),
            command::DEVICE_SET_IRQS => self.interrupts.set(self.function, body, fds),
            command::DEVICE_RESET if body.is_empty() => {
                self.function.reset();
                Ok(())
            }
            command::DEVICE_RESET => Err(Refusal::BodySize { command, size: body.len(), expected: "0" }),
            command::VERSION => Err(Refusal::Order { command, rule: "the session has negotiated already" }),
            command::DEVICE_GET_REGION_IO_FDS
            | command::DIRTY_PAGES
            | command::MIG_DATA_READ
            | command::MIG_DATA_WRITE => Err(Refusal::NotOffered(command)),
            command::DEVICE_FEATURE => Err(Refusal::NoFeature),
            _ => Err(Refusal::UnknownCommand(command)),
        }
    }
}

impl Drop for Attachment<'_> {
    fn drop(&mut self) {
        if let Some(owner) = self.function.message_owner() {
            owner.connect_message(None);
        }
        self.function.connect_interrupts(None);
        self.function.dma_unmap_all();
        self.interrupts.close();
    }
}

/// A refusal with what led to it.
struct Causes<'a>(&'a Refusal);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = std::error::Error::source(self.0);
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// Refused commands, logged so that a client cannot flood the log.
#[derive(Debug, Default)]
struct Complaints {
    count: u64,
}

impl Complaints {
    fn note(&mut self, refusal: &Refusal) {
        if refusal.answers_a_probe() {
            log::debug!("Answered no: {refusal}");
            return;
        }
        self.count += 1;
        match self.count {
            ..LOGGED_REFUSALS => log::warn!("Refused: {}", Causes(refusal)),
            LOGGED_REFUSALS => {
                log::warn!("Refused: {}; further refusals are counted only", Causes(refusal));
            }
            _ => {}
        }
    }
}

impl Drop for Complaints {
    fn drop(&mut self) {
        if self.count > LOGGED_REFUSALS {
            log::warn!("{} commands of this client were refused", self.count);
        }
    }
}

/// Serves one client until it goes, breaks the protocol or is cut. Messages are looked for for `poll` before
/// the thread sleeps.
pub(super) fn serve(
    socket: &UnixStream,
    function: &dyn PciFunction,
    observer: &dyn SessionObserver,
    poll: Duration,
    stop: &StopHandle,
) -> SessionEnd {
    let mut inbox = Inbox::new(Poll::new(poll));
    let mut outbox = Outbox::new();
    let (header, agreement) = match greet(socket, &mut inbox, &mut outbox, function.most_dma_ranges()) {
        Ok(greeting) => greeting,
        Err(end) => return rename_stop(end, stop),
    };
    let peer = Peer::of(socket);
    log::info!("Client connected: process {}, user {}; {agreement:?}", peer.pid, peer.uid);
    observer.connected(&peer);
    let mut attachment = Attachment::new(function);
    // Answered only now: a client that has its answer finds the device attached.
    let end = match outbox.reply(socket, &header) {
        Ok(()) => commands(socket, &mut inbox, &mut outbox, &mut attachment),
        Err(error) => SessionEnd::Send(error),
    };
    let end = rename_stop(end, stop);
    log::info!("Session ends: {}", attachment.traffic);
    drop(attachment);
    observer.disconnected(&end);
    end
}

/// A connection that we cut looks to the socket as if the client had gone.
fn rename_stop(end: SessionEnd, stop: &StopHandle) -> SessionEnd {
    if stop.is_stopped() { SessionEnd::Stopped } else { end }
}

/// The negotiating state. On success the answer to the message with that header lies in `outbox`.
fn greet(
    socket: &UnixStream,
    inbox: &mut Inbox,
    outbox: &mut Outbox,
    most_ranges: usize,
) -> Result<(Header, Agreement), SessionEnd> {
    let system = |error| SessionEnd::Stream(FrameError::Socket(error));
    socket.set_read_timeout(Some(PATIENCE)).map_err(system)?;
    let message = match next(socket, inbox) {
        Ok(message) => message,
        Err(SessionEnd::Stream(FrameError::Socket(error))) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(SessionEnd::Negotiation("it sent nothing for 10 s".to_owned()));
        }
        Err(end) => return Err(end),
    };
    let header = message.header;
    let rule = "the first message must be VERSION";
    let outcome = match header.command {
        command::VERSION if header.flags & flags::TYPE_MASK == flags::COMMAND => {
            outbox.clear();
            version::negotiate(message.body, most_ranges, outbox)
        }
        command => Err(Refusal::Order { command, rule }),
    };
    match outcome {
        Ok(agreement) => {
            socket.set_read_timeout(None).map_err(system)?;
            Ok((header, agreement))
        }
        Err(refusal) => {
            // The client is dropped in any case: that it may not hear why is its own loss.
            let _ = Outbox::refuse(socket, &header, refusal.errno());
            Err(SessionEnd::Negotiation(refusal.to_string()))
        }
    }
}

/// The ready state.
fn commands(
    socket: &UnixStream,
    inbox: &mut Inbox,
    outbox: &mut Outbox,
    attachment: &mut Attachment<'_>,
) -> SessionEnd {
    let mut complaints = Complaints::default();
    loop {
        let message = match next(socket, inbox) {
            Ok(message) => message,
            Err(end) => return end,
        };
        let header = message.header;
        attachment.traffic.note(header.command, message.body);
        outbox.clear();
        let began = Instant::now();
        let is_answered = header.no_reply() || {
            // The guest's processor goes on while this write is carried out.
            let posted = attachment.post(&message, outbox);
            if posted && let Err(error) = outbox.reply(socket, &header) {
                return not_sent(error);
            }
            posted
        };
        let outcome = match header.flags & flags::TYPE_MASK {
            flags::COMMAND => attachment.execute(message, outbox),
            // We send no commands, so there are no replies, and a reply gets no answer.
            flags::REPLY => continue,
            other => Err(Refusal::MessageType(other)),
        };
        let sent = match outcome {
            Ok(()) if is_answered => Ok(()),
            Ok(()) => outbox.reply(socket, &header),
            Err(refusal) => {
                complaints.note(&refusal);
                if is_answered { Ok(()) } else { Outbox::refuse(socket, &header, refusal.errno()) }
            }
        };
        if let Err(error) = sent {
            return not_sent(error);
        }
        // A client may leave thousands of commands behind that want no answer; the next one shall not wait
        // for them.
        if began.elapsed() > LONG && sys::has_hung_up(socket) {
            return SessionEnd::Closed;
        }
    }
}

fn not_sent(error: io::Error) -> SessionEnd {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => SessionEnd::Closed,
        _ => SessionEnd::Send(error),
    }
}

/// The next message. One of an impossible size is answered before the connection goes.
fn next<'a>(socket: &UnixStream, inbox: &'a mut Inbox) -> Result<Message<'a>, SessionEnd> {
    match inbox.next(socket) {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(SessionEnd::Closed),
        Err(FrameError::Size(header)) => {
            refuse_size(socket, &header);
            Err(FrameError::Size(header).into())
        }
        Err(FrameError::Socket(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
            Err(SessionEnd::Closed)
        }
        Err(error) => Err(error.into()),
    }
}

fn refuse_size(socket: &UnixStream, header: &Header) {
    let is_command = header.flags & flags::TYPE_MASK == flags::COMMAND;
    if is_command && !header.no_reply() {
        // The connection ends either way.
        let _ = Outbox::refuse(socket, header, libc::EINVAL);
    }
}
