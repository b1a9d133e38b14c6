//! The beginnings of a head's frames: a thread that is there once somebody has waited for one, and sleeps
//! while nobody does.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::locked;
use gpuvmk_jail::{self as jail, Role};

/// Whose frames begin.
pub trait Blanks: Send + Sync {
    /// Begins a frame, if it is time. In how many nanoseconds the next one is waited for; none: it is not.
    fn blank(&self) -> Option<u64>;
}

#[derive(Debug, Default)]
struct State {
    due: Option<Instant>,
    stop: bool,
}

/// The way to the thread for those who wait for a frame.
#[derive(Debug, Default)]
pub struct Frames(Arc<(Mutex<State>, Condvar)>);

/// The thread.
#[derive(Debug, Default)]
pub struct FrameThread(Mutex<Option<JoinHandle<()>>>);

impl Frames {
    /// The next frame is waited for in that many nanoseconds, or not at all.
    pub fn tell(&self, due: Option<u64>) {
        let (state, changed) = &*self.0;
        let mut state = locked(state);
        state.due = due.and_then(|due| Instant::now().checked_add(Duration::from_nanos(due)));
        if state.due.is_some() {
            changed.notify_one();
        }
    }
}

impl FrameThread {
    /// Sees to it that there is a thread.
    pub fn start(&self, frames: &Frames, whose: Weak<dyn Blanks>) {
        let mut thread = locked(&self.0);
        if thread.is_some() {
            return;
        }
        let shared = Arc::clone(&frames.0);
        let run = move || {
            jail::enter(Role::Frames);
            begin(&shared, &whose);
        };
        match std::thread::Builder::new().name("frames".into()).spawn(run) {
            Ok(started) => *thread = Some(started),
            Err(error) => log::warn!("A head's frames have no thread: {error}"),
        }
    }

    /// Ends it.
    pub fn stop(&self, frames: &Frames) {
        let (state, changed) = &*frames.0;
        locked(state).stop = true;
        changed.notify_one();
        if let Some(thread) = locked(&self.0).take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// The thread's life.
fn begin((state, changed): &(Mutex<State>, Condvar), whose: &Weak<dyn Blanks>) {
    loop {
        let mut now = locked(state);
        loop {
            if now.stop {
                return;
            }
            let left = now.due.map(|due| due.saturating_duration_since(Instant::now()));
            now = match left {
                Some(Duration::ZERO) => break,
                Some(left) => changed.wait_timeout(now, left).unwrap_or_else(PoisonError::into_inner).0,
                None => changed.wait(now).unwrap_or_else(PoisonError::into_inner),
            };
        }
        now.due = None;
        drop(now);
        // The function, which joins this thread, must not be dropped by it: this is only its core.
        let Some(core) = whose.upgrade() else { return };
        let due = core.blank();
        drop(core);
        let mut now = locked(state);
        let next = due.and_then(|due| Instant::now().checked_add(Duration::from_nanos(due)));
        // Whoever has told meanwhile knows better.
        now.due = now.due.or(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counted(AtomicU32);

    impl Blanks for Counted {
        fn blank(&self) -> Option<u64> {
            (self.0.fetch_add(1, Ordering::SeqCst) < 2).then_some(1_000)
        }
    }

    #[test]
    fn frames_begin_while_they_are_waited_for_and_the_thread_ends() {
        let (frames, thread, counted) =
            (Frames::default(), FrameThread::default(), Arc::new(Counted::default()));
        let whose: Weak<dyn Blanks> = Arc::downgrade(&counted) as Weak<dyn Blanks>;
        thread.start(&frames, Weak::clone(&whose));
        thread.start(&frames, whose);
        for _ in 0..2 {
            let before = counted.0.load(Ordering::SeqCst);
            frames.tell(Some(0));
            while counted.0.load(Ordering::SeqCst) == before {
                std::thread::yield_now();
            }
        }
        frames.tell(None);
        thread.stop(&frames);
        assert!(counted.0.load(Ordering::SeqCst) >= 2);
    }
}
