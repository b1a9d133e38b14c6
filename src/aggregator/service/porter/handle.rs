//! The owner's handle of a porter: orders and wake-ups to the porter, and the porter's messages to the owner.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use crate::doorbells::{self, DoorbellReceiver};
use crate::event_ring::{self, EventProducer, WakeHelper};
use crate::message::MessageSender;
use crate::protocol::{Hello, Request};
use crate::service::peer::Peer;
use crate::service::places::Place;
use crate::service::porter_signals::{PorterSignals, mark};
use crate::tenant::Refusal;
use gpuvmk_host::reaper::{Account, Reaped};

/// A message of a porter to the owner.
#[derive(Debug)]
pub(in crate::service) enum FromPorter {
    /// An unadmitted connection wants to be a tenant.
    Hello(Box<Arrival>),
    /// A tenant's request, with its file. The next one comes after the answer.
    Request(Request, Option<Reaped<OwnedFd>>),
    /// A request that is not to be carried out. It is answered all the same.
    Bad(Refusal),
    /// A message could not be sent.
    Unsent(io::Error),
    /// The other side is gone, or is sent away.
    Gone,
}

/// An unadmitted connection with its wish.
#[derive(Debug)]
pub(in crate::service) struct Arrival {
    pub hello: Hello,
    pub peer: Peer,
    /// The VM whose own socket it came by.
    pub door: Option<String>,
    pub porter: PorterHandle,
    pub rings: Rings,
}

/// The shared memory through which a tenant and the owner talk. The porter makes it, since mapping memory
/// makes a process's other threads wait.
#[derive(Debug)]
pub(in crate::service) struct Rings {
    pub doorbells: DoorbellReceiver,
    pub events: EventProducer,
    /// The tenant's ends, in the order of a welcome.
    pub files: [OwnedFd; 4],
}

impl Rings {
    /// Allocates the rings.
    ///
    /// # Errors
    /// Out of memory or descriptors.
    pub(super) fn create() -> io::Result<Self> {
        let (doorbells, board, bell) = doorbells::create()?;
        let (events, ring, pipe) = event_ring::create()?;
        Ok(Self { doorbells, events, files: [board, bell, ring, pipe] })
    }
}

/// An order of the owner to a porter.
pub(super) enum Order {
    Answer(Answer),
    /// The driver's messages are not sent any more.
    ForgetMessage {
        /// One was ordered before.
        send_first: bool,
    },
    /// To be ended.
    Take(Box<dyn Any + Send>),
}

/// An answer, and what comes with it.
#[derive(Debug, Default)]
pub(in crate::service) struct Answer {
    /// The encoded reply.
    pub bytes: Vec<u8>,
    /// Files that go along. They are closed here afterwards.
    pub files: Vec<OwnedFd>,
    /// It makes the unadmitted connection a tenant.
    pub admitted: Option<Admitted>,
    /// Messages go by the eventfd that came with the request, or by none; and whether one was ordered before.
    pub message: Option<ChangeOfMessage>,
}

/// The files of an admitted tenant.
#[derive(Debug)]
pub(in crate::service) struct Admitted {
    /// Wakes the consumer of events up.
    pub pipe: OwnedFd,
    /// In whose name things are closed.
    pub account: Account,
    /// Sends messages to drivers, where the kernel can.
    pub sender: Option<Arc<MessageSender>>,
}

/// See [`Answer::message`].
#[derive(Clone, Copy, Debug)]
pub(in crate::service) struct ChangeOfMessage {
    /// True if the new eventfd must be used.
    pub given: bool,
    /// A message was ordered before, by the old one.
    pub send_first: bool,
}

/// The owner's side of a porter. Dropping it ends the connection.
#[derive(Debug)]
pub(in crate::service) struct PorterHandle {
    pub(super) signals: Arc<PorterSignals>,
    pub(super) orders: Sender<Order>,
    /// For the places of unadmitted connections.
    pub place: Arc<Place>,
}

impl PorterHandle {
    fn order(&self, order: Order) {
        // A porter that has ended on its own needs none.
        if self.orders.send(order).is_ok() {
            self.signals.ring(mark::ORDER);
        }
    }

    /// Sends an answer; the next request is received after it. A tenant that does not read answers is
    /// disconnected.
    pub fn answer(&self, answer: Answer) {
        self.order(Order::Answer(answer));
    }

    /// Ends a thing that belongs to the connection.
    pub fn take(&self, thing: impl Any + Send) {
        self.order(Order::Take(Box::new(thing)));
    }

    /// Messages are not sent any more.
    pub fn forget_message(&self) {
        let send_first = self.take_message();
        self.order(Order::ForgetMessage { send_first });
    }

    /// Withdraws the order to send a message; true if there was one.
    pub fn take_message(&self) -> bool {
        self.signals.marks.fetch_and(!mark::MESSAGE, Ordering::SeqCst) & mark::MESSAGE != 0
    }

    /// What makes its wake-ups.
    pub fn helper(&self) -> Arc<dyn WakeHelper> {
        Arc::clone(&self.signals) as Arc<dyn WakeHelper>
    }

    /// Wake-ups that cost too much.
    pub fn dear_wakeups(&self) -> u64 {
        self.signals.dear.load(Ordering::Relaxed)
    }
}

impl Drop for PorterHandle {
    fn drop(&mut self) {
        self.signals.ring(mark::CLOSE);
    }
}
