//! The interrupts of a virtio function: messages by MSI-X while its driver has enabled that, and else a line
//! with the register that says what it is for.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use super::common::Vectors;
use gpuvmk_pci::InterruptSink;

/// A queue has used buffers.
pub(super) const QUEUE: u8 = 1 << 0;
/// The device's configuration or status is another.
pub(super) const CONFIGURATION: u8 = 1 << 1;

/// The eventfds that send messages.
struct Messages {
    events: Vec<EventFd>,
    /// Which of them wait to be sent.
    waiting: Option<Epoll>,
}

impl Messages {
    fn new(events: Vec<EventFd>) -> Self {
        let waiting = || {
            let epoll = Epoll::new()?;
            for (number, event) in (0..).zip(&events) {
                let interest = EpollEvent::new(EventSet::IN, number);
                epoll.ctl(ControlOperation::Add, event.as_raw_fd(), interest)?;
            }
            std::io::Result::Ok(epoll)
        };
        let waiting = if events.is_empty() { Ok(None) } else { waiting().map(Some) };
        let waiting = waiting.unwrap_or_else(|error| {
            log::warn!("Messages that wait are not seen in their table: {error}");
            None
        });
        Self { events, waiting }
    }
}

/// The interrupts. The line is asserted while a reason waits that the driver has not read.
pub(super) struct Interrupt {
    sink: Option<Arc<dyn InterruptSink>>,
    reasons: u8,
    disabled: bool,
    asserted: bool,
    /// Messages instead of the line.
    by_messages: bool,
    vectors: Vectors,
    messages: Messages,
}

impl Interrupt {
    /// Of a new device.
    pub(super) fn new(vectors: Vectors) -> Self {
        Self {
            sink: None,
            reasons: 0,
            disabled: false,
            asserted: false,
            by_messages: false,
            vectors,
            messages: Messages::new(Vec::new()),
        }
    }

    /// The line goes there from now on.
    pub(super) fn connect(&mut self, sink: Option<Arc<dyn InterruptSink>>) {
        self.sink = sink;
        self.asserted = false;
        self.follow();
    }

    /// Messages go there from now on.
    pub(super) fn connect_messages(&mut self, events: Vec<EventFd>) {
        self.messages = Messages::new(events);
    }

    /// The driver wants these messages.
    pub(super) fn set_vectors(&mut self, vectors: &Vectors) {
        self.vectors = vectors.clone();
    }

    /// A queue has used buffers.
    pub(super) fn raise_queue(&mut self, queue: usize) {
        if !self.by_messages {
            self.raise(QUEUE);
        } else if let Some(event) = self.message(queue) {
            // A full counter is a message that waits already.
            let _ = event.write(1);
        }
    }

    /// Some queue has used buffers: for the line alone.
    pub(super) fn raise_line(&mut self) {
        if !self.by_messages {
            self.raise(QUEUE);
        }
    }

    /// The device's configuration or status is another; what is to be signalled for that, if not the line.
    #[must_use]
    pub(super) fn raise_configuration(&mut self) -> Option<EventFd> {
        if !self.by_messages {
            self.raise(CONFIGURATION);
            return None;
        }
        self.messages.events.get(usize::from(self.vectors.configuration))?.try_clone().ok()
    }

    /// Whether messages are sent, and no line is asserted.
    pub(super) const fn by_messages(&self) -> bool {
        self.by_messages
    }

    /// The eventfd that sends a queue's message.
    pub(super) fn message(&self, queue: usize) -> Option<&EventFd> {
        self.messages.events.get(usize::from(*self.vectors.queues.get(queue)?))
    }

    /// The bits of messages that wait until they are not masked any more, 0 for the others.
    pub(super) fn waiting(&self) -> u128 {
        let mut events = [EpollEvent::default(); 128];
        let found = self.messages.waiting.as_ref().map_or(Ok(0), |epoll| epoll.wait(0, &mut events));
        let waiting = events.iter().take(found.unwrap_or(0)).map(EpollEvent::data);
        waiting.fold(0, |bits, number| {
            bits | 1u128.checked_shl(u32::try_from(number).unwrap_or(128)).unwrap_or(0)
        })
    }

    fn raise(&mut self, reason: u8) {
        self.reasons |= reason;
        self.follow();
    }

    /// The reasons, which have been read then.
    pub(super) fn take(&mut self) -> u8 {
        let reasons = std::mem::take(&mut self.reasons);
        self.follow();
        reasons
    }

    /// True while a reason waits, whether the line may say so or not.
    pub(super) const fn is_pending(&self) -> bool {
        self.reasons != 0
    }

    /// The driver lets the line be used or not, and messages in its place.
    pub(super) fn set(&mut self, line_disabled: bool, by_messages: bool) {
        (self.disabled, self.by_messages) = (line_disabled, by_messages);
        self.follow();
    }

    fn follow(&mut self) {
        let wanted = self.is_pending() && !self.disabled && !self.by_messages;
        if wanted != self.asserted
            && let Some(sink) = &self.sink
        {
            sink.set_intx(wanted);
            self.asserted = wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::NO_VECTOR;
    use super::*;
    use std::sync::Mutex;
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    #[derive(Default)]
    struct Line(Mutex<Vec<bool>>);

    impl InterruptSink for Line {
        fn set_intx(&self, asserted: bool) {
            self.0.lock().unwrap().push(asserted);
        }

        fn fire_msi(&self, _vector: u16) {}

        fn message_sent(&self, _vector: u16) {}
    }

    fn vectors(configuration: u16, queues: &[u16]) -> Vectors {
        Vectors { configuration, queues: queues.to_vec() }
    }

    #[test]
    fn line_is_asserted_until_the_reasons_are_read() {
        let line = Arc::new(Line::default());
        let mut interrupt = Interrupt::new(vectors(NO_VECTOR, &[NO_VECTOR]));
        interrupt.raise_queue(0);
        interrupt.connect(Some(line.clone()));
        assert!(interrupt.raise_configuration().is_none());
        assert_eq!(*line.0.lock().unwrap(), [true]);
        interrupt.set(true, false);
        assert!(interrupt.is_pending());
        interrupt.set(false, false);
        assert_eq!((interrupt.take(), interrupt.take()), (QUEUE | CONFIGURATION, 0));
        assert_eq!(*line.0.lock().unwrap(), [true, false, true, false]);
    }

    #[test]
    fn each_queue_sends_its_own_message_and_leaves_the_line_alone() {
        let line = Arc::new(Line::default());
        let events: Vec<_> = (0..3).map(|_| EventFd::new(EFD_NONBLOCK).unwrap()).collect();
        let mut interrupt = Interrupt::new(vectors(0, &[2, 1, NO_VECTOR, 9]));
        interrupt.connect(Some(line.clone()));
        interrupt.connect_messages(events.iter().map(|event| event.try_clone().unwrap()).collect());
        interrupt.set(false, true);
        assert_eq!(interrupt.waiting(), 0);
        interrupt.raise_queue(0);
        interrupt.raise_queue(2);
        interrupt.raise_queue(3);
        interrupt.raise_queue(100);
        assert_eq!(interrupt.waiting(), 0b100);
        interrupt.raise_configuration().unwrap().write(1).unwrap();
        assert_eq!(interrupt.waiting(), 0b101);
        let sent: Vec<_> = events.iter().map(|event| event.read().ok()).collect();
        assert_eq!(sent, [Some(1), None, Some(1)]);
        assert!(line.0.lock().unwrap().is_empty() && !interrupt.is_pending());
    }
}
