//! What goes on by itself: a thread that carries out what channels of a driver's kernel have left when their
//! doorbell's moment is over, and looks whether waits have ended. It exists only once a driver has such
//! channels.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::locked;
use gpuvmk_gsp::KernelWork;
use gpuvmk_jail::{self as jail, Role};

/// Between two moments of work: others are to have GSP meanwhile.
const PAUSE: Duration = Duration::from_micros(500);
/// Between two looks at waits: twice as long each time, from this to that.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// Who goes on.
pub trait GoesOn: Send + Sync {
    /// Works for a moment; what is left then.
    fn go_on(&self) -> KernelWork;
}

#[derive(Debug, Default)]
struct State {
    /// When the thread is to go on.
    due: Option<Instant>,
    /// Something was left since it went on last.
    told: bool,
    runs: bool,
    stop: bool,
}

impl State {
    fn go_on_in(&mut self, pause: Duration) {
        let then = Instant::now().checked_add(pause);
        self.due = self.due.map_or(then, |due| then.map(|then| due.min(then)));
    }
}

/// The way to the thread for those who leave something.
#[derive(Debug, Default)]
pub struct Later(Arc<(Mutex<State>, Condvar)>);

/// The thread.
#[derive(Debug, Default)]
pub struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Later {
    /// Something is left, or nothing.
    pub fn tell(&self, left: KernelWork) {
        let pause = match left {
            KernelWork::Nothing => return,
            KernelWork::Waits => SHORTEST,
            KernelWork::More => PAUSE,
        };
        let (state, changed) = &*self.0;
        let mut state = locked(state);
        state.told = true;
        state.go_on_in(pause);
        changed.notify_one();
    }

    /// Whether there is a thread.
    pub fn runs(&self) -> bool {
        locked(&self.0.0).runs
    }
}

impl Worker {
    /// Sees to it that there is a thread.
    pub fn start(&self, later: &Later, who: Weak<dyn GoesOn>) {
        let mut thread = locked(&self.0);
        if thread.is_some() {
            return;
        }
        let shared = Arc::clone(&later.0);
        let run = move || {
            jail::enter(Role::KernelChannels);
            go_on(&shared, &who);
        };
        match std::thread::Builder::new().name("kernel-channels".into()).spawn(run) {
            Ok(started) => *thread = Some(started),
            Err(error) => return log::warn!("Channels of the driver's kernel have no thread: {error}"),
        }
        locked(&later.0.0).runs = true;
    }

    /// Ends it.
    pub fn stop(&self, later: &Later) {
        let (state, changed) = &*later.0;
        locked(state).stop = true;
        changed.notify_one();
        if let Some(thread) = locked(&self.0).take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// The thread's life.
fn go_on((state, changed): &(Mutex<State>, Condvar), who: &Weak<dyn GoesOn>) {
    let mut look = SHORTEST;
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
        if std::mem::take(&mut now.told) {
            look = SHORTEST;
        }
        drop(now);
        // The function, which joins this thread, must not be dropped by it: this is only its core.
        let Some(core) = who.upgrade() else { return };
        let left = core.go_on();
        drop(core);
        match left {
            KernelWork::Nothing => {}
            KernelWork::More => locked(state).go_on_in(PAUSE),
            KernelWork::Waits => {
                locked(state).go_on_in(look);
                look = LONGEST.min(look.saturating_mul(2));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Leaves something so many times.
    struct Work(AtomicU32);

    impl GoesOn for Work {
        fn go_on(&self) -> KernelWork {
            match self.0.fetch_sub(1, Ordering::SeqCst) {
                1 => KernelWork::Nothing,
                2..4 => KernelWork::Waits,
                _ => KernelWork::More,
            }
        }
    }

    #[test]
    fn what_is_left_is_worked_on_until_nothing_is() {
        let (later, worker) = (Later::default(), Worker::default());
        let work = Arc::new(Work(AtomicU32::new(6)));
        let who: Weak<dyn GoesOn> = Arc::downgrade(&work) as Weak<dyn GoesOn>;
        assert!(!later.runs());
        worker.start(&later, who.clone());
        worker.start(&later, who);
        later.tell(KernelWork::Nothing);
        later.tell(KernelWork::Waits);
        let start = Instant::now();
        while work.0.load(Ordering::SeqCst) > 0 {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(2));
        worker.stop(&later);
        assert_eq!(work.0.load(Ordering::SeqCst), 0, "it rests when nothing is left");
        assert!(later.runs());
    }
}
