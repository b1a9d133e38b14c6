//! The event ring: how the aggregator sends events to a tenant, without waiting for it.
//!
//! One producer (the aggregator), one consumer (the tenant's link). Notifications of finished work are bits
//! of one word, as they are in hardware: they merge and cannot overflow. Everything else is a record. A
//! consumer that does not read for so long that [`CAPACITY`] records pile up loses records: its own loss,
//! counted.
//!
//! A driver that polls fences has masked the interrupt that such a notification becomes. Its vGPU says so
//! ([`Notifications`]), and is then not woken: the bits stay until they are asked for. Where the notification
//! would become a message and nothing else, the vGPU says that too. Then the producer sends the message
//! itself ([`super::message`]), once, and the bits stay until the driver's handler reads them.
//!
//! The wake-up is a pipe, not an eventfd: each end of a pipe has its own open file description, so a hostile
//! consumer cannot turn the producer's writes into blocking ones. The consumer sees the aggregator's death as
//! the end of the pipe. The producer never trusts the consumer's index: all it can do is to make the ring
//! look full or to lose its own records.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::pipe::PipeFlags;

use super::event_record::{RECORD_WORDS, decode, encode};
use super::link::Deferred;
use super::message::Message;
use super::protocol::Event;
use super::shared::SharedWords;
use gpuvmk_backend::{EngineTime, InterruptInterest};
use gpuvmk_chip::{Engine, EngineSet};

/// Records that fit.
pub const CAPACITY: u32 = 512;

const HEAD: usize = 0;
const TAIL: usize = 16;
const WAITING: usize = 32;
/// The consumer's interest in notifications: 0 to be woken; else the bits below.
const INTEREST: usize = 34;
/// The engines whose work has ended, as the bits of an [`EngineSet`]. A long word, as is the interest.
const NOTIFIED: usize = 48;
/// For how long engines have worked for the tenant: long words of nanoseconds, of the graphics engine and of
/// all copy engines.
const USED_GRAPHICS: usize = 56;
const USED_COPIES: usize = 58;
const RECORDS: usize = 64;
/// Words of a ring that mean something by their place, for those who attack it.
pub const LANDMARKS: [usize; 8] =
    [HEAD, TAIL, WAITING, INTEREST, INTEREST + 1, NOTIFIED, NOTIFIED + 1, RECORDS];
const PAGES: usize = (RECORDS + CAPACITY as usize * RECORD_WORDS).div_ceil(1024);

/// None: the driver would not see them.
const UNASKED: u64 = 1 << 63;
/// The message was sent.
const SENT: u64 = 1 << 62;
/// Those of these engines are a message, those of others nothing.
const ENGINES: u64 = EngineSet::all().bits();
const _: () = assert!(ENGINES & (UNASKED | SENT) == 0);

/// Wakes the consumer and sends its driver's messages in the producer's place: other processes can make both
/// take long. Calls neither wait nor fail; several may become one.
pub trait WakeHelper: std::fmt::Debug + Send + Sync {
    /// Wakes the consumer up.
    fn events(&self);

    /// Sends the message.
    fn message(&self);
}

/// How the consumer is woken up.
#[derive(Debug)]
enum Wakes {
    /// Here and now.
    Here { pipe: OwnedFd, message: Option<Message> },
    /// By another thread.
    Helper {
        helper: Arc<dyn WakeHelper>,
        /// It has a message to send.
        message: bool,
    },
}

/// The aggregator's end.
#[derive(Debug)]
pub struct EventProducer {
    ring: SharedWords,
    wakes: Wakes,
    unsent: u64,
    tail: u32,
    lost: u64,
}

/// The tenant's end.
#[derive(Debug)]
pub struct EventConsumer {
    ring: Arc<SharedWords>,
    wake: OwnedFd,
    head: u32,
}

/// The tenant's notifications of finished work, for the part of the backend that knows whether the driver has
/// masked them. May be used beside the consumer's thread.
#[derive(Clone, Debug)]
pub struct Notifications {
    ring: Arc<SharedWords>,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There may be events.
    Events,
    /// The aggregator is gone.
    Ended,
}

/// Makes a ring: the producer, the ring's file and the pipe end for the consumer.
///
/// # Errors
/// Out of memory or descriptors.
pub fn create() -> io::Result<(EventProducer, OwnedFd, OwnedFd)> {
    let (ring, file) = SharedWords::create("gpuvmk-events", PAGES)?;
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let wakes = Wakes::Here { pipe: ours, message: None };
    Ok((EventProducer { ring, wakes, unsent: 0, tail: 0, lost: 0 }, file, theirs))
}

impl EventProducer {
    /// Hands over an event. Never blocks. False when the consumer is so far behind that the event is lost.
    pub fn send(&mut self, event: Event) -> bool {
        let kept = match event {
            Event::NonStall(engine) if self.notify(engine) => true,
            Event::NonStall(_) => return true,
            _ => self.push(event),
        };
        self.wake();
        kept
    }

    /// Sets how the consumer's message is sent from now on; drops the old way. Does nothing where a helper
    /// sends it.
    pub fn set_message(&mut self, new: Option<Message>) {
        if let Wakes::Here { message, .. } = &mut self.wakes {
            *message = new;
        }
    }

    /// From now on, `helper` wakes the consumer up and sends its messages ([`Self::set_messages`]). Returns
    /// the pipe's end to do the former by, unless another helper has it.
    pub fn hand_over(&mut self, helper: Arc<dyn WakeHelper>) -> Option<OwnedFd> {
        match std::mem::replace(&mut self.wakes, Wakes::Helper { helper, message: false }) {
            Wakes::Here { pipe, .. } => Some(pipe),
            Wakes::Helper { .. } => None,
        }
    }

    /// Whether the helper can send the consumer's messages from now on.
    pub fn set_messages(&mut self, given: bool) {
        if let Wakes::Helper { message, .. } = &mut self.wakes {
            *message = given;
        }
    }

    /// A message that was ordered could not be sent: the consumer is notified, so that it can send its
    /// messages itself.
    pub fn unsent(&mut self, error: &io::Error) {
        self.note_unsent(error);
        self.push(Event::Unsent);
        self.wake();
    }

    /// Notes the end of work. True when the consumer must be woken.
    fn notify(&mut self, engine: Engine) -> bool {
        let bits = EngineSet::from(engine).bits();
        // A bit that is still set has not been taken: nothing new to tell.
        if self.ring.long(NOTIFIED).fetch_or(bits, Ordering::SeqCst) & bits == bits {
            return false;
        }
        // A masked notification, or one that the driver comes for anyway, is taken when the interest changes:
        // the consumer stores the interest first and reads the bits then; here the order is the reverse.
        let interest = self.ring.long(INTEREST).load(Ordering::SeqCst);
        if interest == 0 {
            return true;
        }
        if interest & (UNASKED | SENT) != 0 || interest & bits == 0 {
            return false;
        }
        if matches!(self.wakes, Wakes::Here { message: None, .. } | Wakes::Helper { message: false, .. }) {
            return true;
        }
        // Said before it is done: a driver that handles the message must find that it was sent.
        let sent = interest | SENT;
        if self
            .ring
            .long(INTEREST)
            .compare_exchange(interest, sent, Ordering::SeqCst, Ordering::SeqCst)
            .is_err()
        {
            return true;
        }
        let sent = match &self.wakes {
            Wakes::Here { message: Some(message), .. } => message.send(),
            Wakes::Here { message: None, .. } => Ok(()),
            Wakes::Helper { helper, .. } => {
                helper.message();
                Ok(())
            }
        };
        let Err(error) = sent else { return false };
        self.note_unsent(&error);
        self.push(Event::Unsent)
    }

    fn note_unsent(&mut self, error: &io::Error) {
        self.unsent = self.unsent.saturating_add(1);
        // A tenant decides how often.
        if self.unsent.is_power_of_two() {
            let unsent = self.unsent;
            log::warn!(
                "a backend's message cannot be sent ({unsent} so far), it may do that itself: {error}"
            );
        }
        match &mut self.wakes {
            Wakes::Here { message, .. } => *message = None,
            Wakes::Helper { message, .. } => *message = false,
        }
    }

    /// Tells for how long engines have worked for the consumer. It is woken by nothing.
    pub fn set_engine_time(&self, time: EngineTime) {
        self.ring.long(USED_GRAPHICS).store(time.graphics, Ordering::Relaxed);
        self.ring.long(USED_COPIES).store(time.copies, Ordering::Relaxed);
    }

    /// Events lost because the consumer did not take them.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    fn push(&mut self, event: Event) -> bool {
        let head = self.ring.word(HEAD).load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) >= CAPACITY {
            self.lost = self.lost.saturating_add(1);
            return false;
        }
        let at = record_at(self.tail);
        for (i, word) in encode(event).into_iter().enumerate() {
            self.ring.word(at.wrapping_add(i)).store(word, Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        self.ring.word(TAIL).store(self.tail, Ordering::Release);
        true
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        let waiting = || self.ring.word(WAITING);
        if waiting().load(Ordering::SeqCst) != 0 && waiting().swap(0, Ordering::SeqCst) != 0 {
            match &self.wakes {
                // A full pipe means that a wake-up is pending; a broken one, that the consumer is gone, which
                // its socket shows too.
                Wakes::Here { pipe, .. } => drop(rustix::io::write(pipe, &[1])),
                Wakes::Helper { helper, .. } => helper.events(),
            }
        }
    }
}

impl EventConsumer {
    /// The tenant's end, from the files that the aggregator sent.
    ///
    /// # Errors
    /// The memory is not a ring.
    pub fn open(file: BorrowedFd<'_>, wake: OwnedFd) -> io::Result<Self> {
        Ok(Self { ring: Arc::new(SharedWords::open(file, PAGES)?), wake, head: 0 })
    }

    /// The notifications among what comes.
    pub fn notifications(&self) -> Notifications {
        Notifications { ring: Arc::clone(&self.ring) }
    }

    /// Takes everything that is there.
    pub fn take(&mut self, mut each: impl FnMut(Event)) -> usize {
        let mut taken: usize = 0;
        let tail = self.ring.word(TAIL).load(Ordering::Acquire);
        let count = tail.wrapping_sub(self.head).min(CAPACITY);
        for _ in 0..count {
            let at = record_at(self.head);
            let record = std::array::from_fn(|i| self.ring.word(at.wrapping_add(i)).load(Ordering::Relaxed));
            self.head = self.head.wrapping_add(1);
            self.ring.word(HEAD).store(self.head, Ordering::Release);
            if let Some(event) = decode(record) {
                each(event);
                taken = taken.saturating_add(1);
            }
        }
        // Notifications that a message was sent for are left to its handler.
        if self.ring.long(INTEREST).load(Ordering::SeqCst) & SENT == 0 {
            for engine in take_notified(&self.ring).engines() {
                each(Event::NonStall(engine));
                taken = taken.saturating_add(1);
            }
        }
        taken
    }

    /// Sleeps until there is something to take, the aggregator is gone, or `stop` is readable.
    ///
    /// # Errors
    /// The `poll` system call failed.
    pub fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<Woken> {
        use rustix::event::{PollFd, PollFlags, poll};

        if !self.prepare_to_sleep() {
            return Ok(Woken::Events);
        }
        let mut fds = [PollFd::new(&self.wake, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Woken::Events),
            Err(error) => return Err(error.into()),
        }
        self.woken()
    }

    /// Announces that this end is going to sleep. False when there is something to take already.
    fn prepare_to_sleep(&self) -> bool {
        self.ring.word(WAITING).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let tail = self.ring.word(TAIL).load(Ordering::SeqCst);
        let wanted = self.ring.long(INTEREST).load(Ordering::SeqCst) & (UNASKED | SENT) == 0;
        let pending = tail != self.head || (wanted && self.ring.long(NOTIFIED).load(Ordering::SeqCst) != 0);
        if pending {
            self.ring.word(WAITING).store(0, Ordering::SeqCst);
        }
        !pending
    }

    /// The cause of a wake-up; its events may have been taken already.
    fn woken(&self) -> io::Result<Woken> {
        let mut bytes = [0; 64];
        match rustix::io::read(&self.wake, &mut bytes) {
            Ok(0) => Ok(Woken::Ended),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Woken::Events),
            Err(error) => Err(error.into()),
        }
    }
}

impl Notifications {
    /// Sets the interest in notifications from now on. When they are no longer masked, returns those that
    /// came while they were.
    pub fn interest(&self, interest: InterruptInterest) -> Deferred {
        let sent = self.ring.long(INTEREST).swap(word_of(interest), Ordering::SeqCst) & SENT != 0;
        let engines = if interest == InterruptInterest::Masked {
            EngineSet::empty()
        } else {
            take_notified(&self.ring)
        };
        Deferred { engines, sent }
    }

    /// For how long engines have worked for this end's guest, as the producer said last.
    pub fn engine_time(&self) -> EngineTime {
        EngineTime {
            graphics: self.ring.long(USED_GRAPHICS).load(Ordering::Relaxed),
            copies: self.ring.long(USED_COPIES).load(Ordering::Relaxed),
        }
    }

    /// Takes all pending notifications. If a message was sent, no other is sent before the next
    /// [`Self::interest`].
    pub fn take(&self) -> Deferred {
        // A plain load first: without a change it costs no locked instruction. No other thread clears the
        // mark.
        let sent = self.ring.long(INTEREST).load(Ordering::SeqCst) & SENT != 0;
        if sent {
            self.ring.long(INTEREST).store(0, Ordering::SeqCst);
        }
        Deferred { engines: take_notified(&self.ring), sent }
    }
}

const fn word_of(interest: InterruptInterest) -> u64 {
    match interest {
        InterruptInterest::Masked => UNASKED,
        InterruptInterest::Wake => 0,
        InterruptInterest::Message(engines) => engines.bits(),
    }
}

fn take_notified(ring: &SharedWords) -> EngineSet {
    // A load first: what is empty costs no locked instruction. It must not be done before what the caller
    // said in INTEREST is to be seen.
    if ring.long(NOTIFIED).load(Ordering::SeqCst) == 0 {
        return EngineSet::empty();
    }
    // Bits of no engine are the other end's mistake, and nobody's notification.
    EngineSet::from_bits_truncate(ring.long(NOTIFIED).swap(0, Ordering::SeqCst))
}

const fn record_at(index: u32) -> usize {
    RECORDS + (index % CAPACITY) as usize * RECORD_WORDS
}

#[cfg(any(test, feature = "testing"))]
mod testing;
#[cfg(test)]
mod tests;
