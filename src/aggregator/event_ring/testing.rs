//! For searches through every order of both ends' steps: what a ring does in its usual course, one step at a
//! time.

#![allow(clippy::expect_used, reason = "a search that has no descriptors must not go on")]

use super::*;
use crate::message::MessageSender;

impl EventConsumer {
    /// See [`EventConsumer::prepare_to_sleep`].
    pub fn falls_asleep(&self) -> bool {
        self.prepare_to_sleep()
    }

    /// Readable when a wake-up has come that was not taken.
    pub fn wake_copy(&self) -> OwnedFd {
        self.wake.try_clone().expect("a descriptor is left")
    }

    /// Takes the wake-up.
    pub fn wakes_up(&self) {
        self.woken().expect("the eventfd is its own");
    }
}

impl EventProducer {
    /// Sends messages by that eventfd from now on.
    pub fn sends_by(&mut self, event: OwnedFd) {
        self.set_message(Some(Message::new(
            event,
            Arc::new(MessageSender::new().expect("a descriptor is left")),
        )));
    }
}

impl Notifications {
    /// Which words both ends' steps are about.
    pub const STEPS: [usize; 3] = [WAITING, INTEREST, NOTIFIED];

    /// What those are.
    pub fn words(&self) -> [u64; 3] {
        let waiting = self.ring.at(WAITING).load(Ordering::SeqCst).into();
        [waiting, self.long(INTEREST), self.long(NOTIFIED)]
    }

    fn long(&self, index: usize) -> u64 {
        self.ring.long_at(index).load(Ordering::SeqCst)
    }

    /// The mistake that searches are to find: [`Notifications::interest`] without the look that follows.
    pub fn say_only(&self, interest: InterruptInterest) {
        self.ring.long(INTEREST).store(word_of(interest), Ordering::SeqCst);
    }

    /// As at the beginning.
    pub fn clear(&self) {
        self.ring.at(WAITING).store(0, Ordering::SeqCst);
        self.ring.long_at(INTEREST).store(0, Ordering::SeqCst);
        self.ring.long_at(NOTIFIED).store(0, Ordering::SeqCst);
    }
}
