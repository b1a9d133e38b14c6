//! A connection's porter: the thread that owns the socket of one device back end, and all else whose use
//! takes as long as others like.
//!
//! Receiving a datagram installs its descriptors in this process, or closes those that are not wanted.
//! Sending one, writing to a pipe or signalling an eventfd wakes every waiter. Closing a descriptor may do
//! whatever the other side has arranged. All of these can take long, so the aggregator's own thread does none
//! of them. It gets decoded requests, one at a time from each connection, with a descriptor that was checked
//! without asking a file system, and hands answers and wake-ups back. A porter that is held up delays its own
//! connection only, and ends by itself once it no longer is.
//!
//! Wake-ups merge: the owner sets a mark, and one system call is made for all that were set meanwhile. A
//! porter measures what they cost in processor time. Where that is more than [`DEAR`], time after time, it
//! rests for several times as long.
//!
//! Locks: none. Orders come over a channel, marks are a word, and a private eventfd ends the porter's sleep.

pub(super) mod handle;
mod requests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use super::commands::Commands;
use super::peer::Peer;
use super::places::Place;
use super::porter_signals::{PorterSignals, mark};
use crate::message::Message;
use crate::seqpacket::{self, Next};
use crate::wire;
use gpuvmk_host::poll_window::PollWindow;
use gpuvmk_host::processors::to_spare;
use handle::{Admitted, Answer, FromPorter, Order, PorterHandle};

/// How long a connection may stay silent.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// More than the wake-ups of an honest VM cost, even in a nested machine.
const DEAR: Duration = Duration::from_micros(200);

/// For how many times as long a porter rests after a dear one, and for how long at most.
const REST: u32 = 16;
const LONGEST_REST: Duration = Duration::from_secs(1);

/// How long a tenant's porter polls before it sleeps, at most, where there are processors to spare. Elsewhere
/// it sleeps at once: others need the processor, and since Linux 6.18 each yield to them gives up a slice.
const LOOK: Duration = Duration::from_millis(1);

/// Stage of a connection, from unadmitted to tenant.
enum Stage {
    /// Nothing was asked yet.
    Unadmitted {
        peer: Peer,
        door: Option<String>,
        handle: PorterHandle,
        /// When it is sent away.
        until: Instant,
        mistakes: u32,
    },
    /// Its wish is the owner's to answer.
    Asking,
    Tenant(Admitted),
}

/// State of a porter's thread.
pub(super) struct Porter {
    number: u32,
    socket: OwnedFd,
    stage: Stage,
    owner: Commands,
    signals: Arc<PorterSignals>,
    orders: Receiver<Order>,
    bytes: Vec<u8>,
    message: Option<Message>,
    /// True if the failure of the last message was logged.
    is_unsent: bool,
    /// The eventfd of the request that is being carried out.
    offered: Option<OwnedFd>,
    /// An answer is to come.
    waits: bool,
    last_cost: Duration,
    window: PollWindow,
    /// Given up last of all.
    place: Arc<Place>,
}

/// Why a porter ends.
enum End {
    /// The owner does not need it.
    Ordered,
    /// The other side is gone.
    Left,
    /// It failed; the reason.
    Own(String),
}

impl Porter {
    /// For a connection that was accepted.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(
        number: u32,
        socket: OwnedFd,
        (peer, door): (Peer, Option<String>),
        owner: Commands,
        place: Arc<Place>,
    ) -> io::Result<Self> {
        let signals = Arc::new(PorterSignals::new()?);
        place.set_signals(&signals);
        let (sender, orders) = channel();
        let handle =
            PorterHandle { signals: Arc::clone(&signals), orders: sender, place: Arc::clone(&place) };
        let until = Instant::now() + HELLO_PATIENCE;
        Ok(Self {
            number,
            socket,
            stage: Stage::Unadmitted { peer, door, handle, until, mistakes: 0 },
            owner,
            signals,
            orders,
            bytes: vec![0; wire::MAX_REQUEST_BYTES],
            message: None,
            is_unsent: false,
            offered: None,
            waits: false,
            last_cost: Duration::ZERO,
            window: PollWindow::new(if to_spare() { LOOK } else { Duration::ZERO }),
            place,
        })
    }

    /// Serves the connection to its end, and closes what it had.
    pub fn run(mut self) {
        let end = self.serve();
        self.place.closes(Instant::now());
        let known = !matches!(self.stage, Stage::Unadmitted { .. });
        match end {
            Err(end @ (End::Left | End::Own(_))) if known => {
                if let End::Own(why) = end {
                    log::debug!("connection {} ends: {why}", self.number);
                }
                self.say(FromPorter::Gone);
                // The owner sends the rest of its descriptors here, to be closed.
                while self.signals.marks.load(Ordering::SeqCst) & mark::CLOSE == 0 {
                    self.sleep_until_marked();
                    self.take_things();
                }
            }
            Err(End::Own(why)) => self.place.sent_away(&why),
            Err(End::Ordered | End::Left) | Ok(()) => {}
        }
        self.take_things();
    }

    fn take_things(&mut self) {
        self.signals.marks.fetch_and(!mark::ORDER, Ordering::SeqCst);
        self.orders.try_iter().for_each(drop);
    }

    fn serve(&mut self) -> Result<(), End> {
        loop {
            self.carry_out_orders()?;
            let until = match &self.stage {
                Stage::Unadmitted { until, .. } => Some(*until),
                Stage::Asking | Stage::Tenant(_) => None,
            };
            if self.poll_or_sleep(!self.waits, until).map_err(own)? {
                self.receive()?;
            } else if until.is_some_and(|until| Instant::now() >= until) {
                return Err(End::Own("it did not say hello".to_owned()));
            }
        }
    }

    /// Polls for a tenant's requests for a while, and sleeps then: the owner answers a request soon, and
    /// often another request follows. Yields the processor between two looks. The result is that of
    /// [`Self::sleep`].
    fn poll_or_sleep(&mut self, listens: bool, until: Option<Instant>) -> io::Result<bool> {
        if !matches!(self.stage, Stage::Tenant(_)) {
            return self.sleep(listens, until);
        }
        let began = Instant::now();
        while began.elapsed() < self.window.time() {
            let marked = self.signals.marks.load(Ordering::SeqCst) != 0;
            if marked || listens && self.has_datagram()? {
                self.window.waited(began.elapsed());
                return Ok(!marked);
            }
            rustix::thread::sched_yield();
        }
        let found = self.sleep(listens, until)?;
        self.window.waited(began.elapsed());
        Ok(found)
    }

    /// True if a datagram, or the other side's end, can be received now.
    fn has_datagram(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sleeps until there are marks, the socket has something (if that is looked for) or has hung up, or it
    /// is time. True when a datagram can be received.
    fn sleep(&self, listens: bool, until: Option<Instant>) -> io::Result<bool> {
        self.signals.asleep.store(true, Ordering::SeqCst);
        let timeout = if self.signals.marks.load(Ordering::SeqCst) == 0 {
            until.map(|until| until.saturating_duration_since(Instant::now()))
        } else {
            Some(Duration::ZERO)
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let wanted = if listens { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = [PollFd::new(&self.socket, wanted), PollFd::new(&self.signals.bell, PollFlags::IN)];
        let polled = poll(&mut fds, timeout.as_ref());
        self.signals.asleep.store(false, Ordering::SeqCst);
        match polled {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        let [socket, bell] = fds.map(|fd| fd.revents());
        if !bell.is_empty() {
            let _ = rustix::io::read(&self.signals.bell, &mut [0; 8]);
        }
        if !listens && !socket.is_empty() && bell.is_empty() {
            return Err(io::Error::from(io::ErrorKind::ConnectionReset));
        }
        Ok(listens && !socket.is_empty())
    }

    /// Sleeps until there are marks.
    fn sleep_until_marked(&self) {
        self.signals.asleep.store(true, Ordering::SeqCst);
        if self.signals.marks.load(Ordering::SeqCst) == 0 {
            let _ = poll(&mut [PollFd::new(&self.signals.bell, PollFlags::IN)], None);
            let _ = rustix::io::read(&self.signals.bell, &mut [0; 8]);
        }
        self.signals.asleep.store(false, Ordering::SeqCst);
    }

    /// Does what was ordered, and wakes up whom it is time to.
    fn carry_out_orders(&mut self) -> Result<(), End> {
        if self.signals.marks.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let before = processor_time();
        let marks = self.signals.marks.swap(0, Ordering::SeqCst);
        if marks & mark::ORDER != 0 {
            while let Ok(order) = self.orders.try_recv() {
                self.carry_out_order(order)?;
            }
        }
        if marks & mark::MESSAGE != 0 {
            self.send_message();
        }
        if marks & mark::EVENTS != 0
            && let Stage::Tenant(tenant) = &self.stage
        {
            // A full pipe means that a wake-up is pending; a broken one, that the consumer is gone, which its
            // socket shows too.
            let _ = rustix::io::write(&tenant.pipe, &[1]);
        }
        if marks & mark::CLOSE != 0 {
            return Err(End::Ordered);
        }
        if marks & mark::GIVE_WAY != 0
            && matches!(self.stage, Stage::Unadmitted { .. })
            // It has been slow, and is not silent.
            && seqpacket::peek(&self.socket).map_err(own)? == Next::Nothing
        {
            return Err(End::Own("it said nothing, and somebody else needed its place".to_owned()));
        }
        self.rest(processor_time().saturating_sub(before));
        Ok(())
    }

    /// Rests when wake-ups were dear twice in a row. (Once may be the kernel's own doing.)
    fn rest(&mut self, cost: Duration) {
        let last = std::mem::replace(&mut self.last_cost, cost);
        if cost <= DEAR || last <= DEAR {
            return;
        }
        let dear = self.signals.dear.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if dear.is_power_of_two() {
            let number = self.number;
            log::warn!(
                "connection {number}: its wake-ups take {} us each ({dear} so far): too many wait for them, it is slowed down",
                cost.as_micros()
            );
        }
        std::thread::sleep(cost.min(last).saturating_mul(REST).min(LONGEST_REST));
    }

    fn carry_out_order(&mut self, order: Order) -> Result<(), End> {
        match order {
            Order::Take(thing) => drop(thing),
            Order::ForgetMessage { send_first } => {
                if send_first {
                    self.send_message();
                }
                self.message = None;
            }
            Order::Answer(answer) => {
                let Answer { bytes, files, admitted, message } = answer;
                let offered = self.offered.take();
                if let Some(change) = message {
                    if change.send_first {
                        self.send_message();
                    }
                    self.message = match (&self.stage, offered.filter(|_| change.given)) {
                        (Stage::Tenant(Admitted { sender: Some(sender), .. }), Some(event)) => {
                            Some(Message::new(event, Arc::clone(sender)))
                        }
                        _ => None,
                    };
                    self.is_unsent = false;
                }
                if let Some(admitted) = admitted {
                    self.stage = Stage::Tenant(admitted);
                    self.place.is_tenant();
                }
                self.waits = false;
                self.send(&bytes, &files)?;
            }
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8], files: &[OwnedFd]) -> Result<(), End> {
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        seqpacket::send(&self.socket, bytes, &files, true).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => End::Left,
            _ => End::Own(format!("its answer cannot be sent: {error}")),
        })
    }

    fn send_message(&mut self) {
        let sent = match &self.message {
            Some(message) => message.send(),
            // Said before. Once more, it might be taken for one of an eventfd that has come since.
            None if self.is_unsent => return,
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        if let Err(error) = sent {
            self.message = None;
            self.is_unsent = true;
            self.say(FromPorter::Unsent(error));
        }
    }

    fn say(&self, said: FromPorter) {
        if !self.owner.report(self.number, said) {
            // The owner is gone.
            self.signals.ring(mark::CLOSE);
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn own(error: io::Error) -> End {
    if error.kind() == io::ErrorKind::ConnectionReset { End::Left } else { End::Own(error.to_string()) }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
