//! The timer's alarm in real time: a thread that sleeps until the alarm's time. It exists only once a driver
//! has set an alarm.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::face::Face;
use gpuvmk_jail::{self as jail, Role};

#[derive(Debug, Default)]
struct State {
    deadline: Option<Instant>,
    stop: bool,
}

/// Wakes the function when its alarm is due.
#[derive(Debug, Default)]
pub struct Alarm {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    /// Sets (or cancels) the alarm.
    pub fn set(&mut self, face: &Arc<Face>, delay: Option<Duration>) {
        if delay.is_none() && self.thread.is_none() {
            return;
        }
        let (state, changed) = &*self.shared;
        let deadline = delay.and_then(|delay| Instant::now().checked_add(delay));
        state.lock().unwrap_or_else(PoisonError::into_inner).deadline = deadline;
        changed.notify_one();
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let face = Arc::downgrade(face);
            let thread = std::thread::Builder::new().name("gf100-alarm".into());
            let run = move || {
                jail::enter(Role::Alarm);
                sleep(&shared, &face);
            };
            match thread.spawn(run) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => log::warn!("The timer alarm has no thread: {error}"),
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let (state, changed) = &*self.shared;
        state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn sleep(shared: &(Mutex<State>, Condvar), face: &Weak<Face>) {
    let (state, changed) = shared;
    let mut state_now = state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state_now.stop {
        let left = state_now.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        state_now = match left {
            None => changed.wait(state_now).unwrap_or_else(PoisonError::into_inner),
            Some(left) if !left.is_zero() => {
                changed.wait_timeout(state_now, left).unwrap_or_else(PoisonError::into_inner).0
            }
            Some(_) => {
                state_now.deadline = None;
                drop(state_now);
                // The function, which joins this thread, must not be dropped by it: hold the face only.
                if let Some(face) = face.upgrade() {
                    face.tick();
                }
                state.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
    }
}
