//! Tracks the interest that a function's back was given: whether notifications of finished work wake a
//! thread, are held back, or are a message that the back may send by itself.
//!
//! A back that sent the message reports so at the next access that concerns interrupts, before the access is
//! carried out. So a driver that handles the message finds everything as if the function had sent it. Only
//! "masked" must never be set for too long. Other late changes cost a spurious message, or a spurious
//! wake-up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gpuvmk_backend::InterruptInterest;
use gpuvmk_backend::{Backend, Completions};

/// The last interest that was set. Its lock is held while the back is called, which calls the units.
#[derive(Debug, Default)]
pub struct InterestTracker(Mutex<InterruptInterest>);

impl InterestTracker {
    fn lock(&self) -> MutexGuard<'_, InterruptInterest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last interest that was set; `None` while another thread changes it.
    #[cfg(any(test, feature = "testing"))]
    pub fn current(&self) -> Option<InterruptInterest> {
        use std::sync::TryLockError;
        match self.0.try_lock() {
            Ok(last) => Some(*last),
            Err(TryLockError::Poisoned(last)) => Some(*last.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Nothing is noticed from now on: at the start, and with a reset.
    pub fn reset<B: Backend + ?Sized>(&self, back: &B) {
        let mut last = self.lock();
        if let Some(completions) = back.completions() {
            completions.set_completion_interest(InterruptInterest::Masked);
        }
        *last = InterruptInterest::Masked;
    }

    /// To be called before an access that shows finished work, or changes the driver's interest in it.
    pub fn deliver<B: Backend + ?Sized>(&self, back: &B) {
        let mut last = self.lock();
        if back.completions().is_some_and(Completions::take_completions) {
            *last = InterruptInterest::Wake;
        }
    }

    /// After an access that may have changed it; `interest` says what the driver would notice now.
    pub fn update<B: Backend + ?Sized>(&self, back: &B, interest: impl Fn() -> InterruptInterest) {
        let mut last = self.lock();
        // Delivered notifications change it again: a message that was armed is sent then.
        loop {
            let now = interest();
            if now == *last {
                return;
            }
            let sent = back.completions().is_some_and(|back| back.set_completion_interest(now));
            *last = if sent { InterruptInterest::Wake } else { now };
        }
    }
}
