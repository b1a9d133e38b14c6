//! Lets one thread at a time work with something, without holding a lock during the work. The thread takes
//! the thing out of its [`Seat`] and puts it back.
//!
//! Work may take long, and may be handed to other threads. The lock is held to take and to put back only, so
//! that nobody waits for it; who wants what is taken waits until it is back.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What is inside.
#[derive(Debug)]
struct Inner<T> {
    /// `None` while somebody has it.
    parts: Option<Box<T>>,
    /// Number of threads that wait. It is kept because a wake-up of nobody would cost a system call.
    waiting: usize,
    /// Number of waiting threads that have priority.
    urgent: usize,
}

/// The place of one thing while no thread works with it.
pub(super) struct Seat<T> {
    inner: Mutex<Inner<T>>,
    put_back: Condvar,
    /// What lies there after work that ended by a panic.
    fresh: Box<dyn Fn() -> T + Send + Sync>,
}

impl<T: fmt::Debug> fmt::Debug for Seat<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Puts back what was taken, whatever happens meanwhile.
struct Taken<'a, T> {
    seat: &'a Seat<T>,
    /// The thing to put back; `None` while work goes on.
    parts: Option<Box<T>>,
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        let parts = self.parts.take().unwrap_or_else(|| Box::new((self.seat.fresh)()));
        let mut inner = self.seat.lock();
        inner.parts = Some(parts);
        let anybody = inner.waiting > 0;
        drop(inner);
        if anybody {
            self.seat.put_back.notify_all();
        }
    }
}

impl<T> Seat<T> {
    /// A place that holds what `fresh` makes.
    pub(super) fn new(fresh: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let inner = Inner { parts: Some(Box::new(fresh())), waiting: 0, urgent: 0 };
        Self { inner: Mutex::new(inner), put_back: Condvar::new(), fresh: Box::new(fresh) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, mut inner: MutexGuard<'a, Inner<T>>) -> MutexGuard<'a, Inner<T>> {
        inner.waiting += 1;
        let mut inner = self.put_back.wait(inner).unwrap_or_else(PoisonError::into_inner);
        inner.waiting -= 1;
        inner
    }

    fn work<R>(&self, mut parts: Box<T>, work: impl FnOnce(&mut T) -> R) -> R {
        let mut taken = Taken { seat: self, parts: None };
        let result = work(&mut parts);
        taken.parts = Some(parts);
        result
    }

    /// What is there for whoever has not to come first.
    fn take(inner: &mut Inner<T>) -> Option<Box<T>> {
        if inner.urgent == 0 { inner.parts.take() } else { None }
    }

    /// Waits until nobody works with it, and does `work`.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut inner = self.lock();
        loop {
            if let Some(parts) = Self::take(&mut inner) {
                drop(inner);
                return self.work(parts, work);
            }
            inner = self.wait(inner);
        }
    }

    /// The same before everybody else who waits. `announce` is for whoever works with it then: nobody begins
    /// between the two.
    pub(super) fn with_first<R>(&self, announce: impl FnOnce(), work: impl FnOnce(&mut T) -> R) -> R {
        let mut inner = self.lock();
        inner.urgent += 1;
        announce();
        loop {
            if let Some(parts) = inner.parts.take() {
                inner.urgent -= 1;
                drop(inner);
                return self.work(parts, work);
            }
            inner = self.wait(inner);
        }
    }

    /// The same, unless `wanted` says no before it is to be had. It is asked again when something was put
    /// back.
    pub(super) fn with_if(&self, wanted: impl Fn() -> bool, work: impl FnOnce(&mut T)) {
        let mut inner = self.lock();
        while wanted() {
            if let Some(parts) = Self::take(&mut inner) {
                drop(inner);
                return self.work(parts, work);
            }
            inner = self.wait(inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_works_at_a_time_and_no_lock_is_held() {
        let (seat, working) = (Seat::new(|| 0_u32), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        seat.with(|sum| {
                            assert_eq!(working.fetch_add(1, Ordering::Relaxed), 0, "somebody else works too");
                            assert!(seat.lock().parts.is_none(), "and can be asked meanwhile");
                            *sum += 1;
                            working.fetch_sub(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(seat.with(|sum| *sum), 4000);
    }

    #[test]
    fn who_wants_it_no_more_does_not_get_it() {
        let (seat, wanted) = (Seat::new(|| 0_u32), AtomicBool::new(true));
        let ((told, working), (go, may_end)) = (channel(), channel::<()>());
        std::thread::scope(|scope| {
            let (seat, wanted) = (&seat, &wanted);
            scope.spawn(move || {
                seat.with(|sum| {
                    *sum = 1;
                    told.send(()).unwrap();
                    may_end.recv().unwrap();
                    wanted.store(false, Ordering::Release);
                });
            });
            working.recv().unwrap();
            let waiter = scope.spawn(|| seat.with_if(|| wanted.load(Ordering::Acquire), |sum| *sum = 2));
            while seat.lock().waiting == 0 {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            waiter.join().unwrap();
        });
        assert_eq!(seat.with(|sum| *sum), 1);
        seat.with_if(|| true, |sum| *sum = 3);
        assert_eq!(seat.with(|sum| *sum), 3);
    }

    #[test]
    fn who_comes_first_comes_before_those_who_have_waited_for_longer() {
        let (seat, announced) = (Seat::new(Vec::new), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (seat, announced) = (&seat, &announced);
            seat.with(|order| {
                for _ in 0..3 {
                    scope.spawn(|| seat.with(|order: &mut Vec<&str>| order.push("another")));
                }
                while seat.lock().waiting < 3 {
                    std::thread::yield_now();
                }
                let announce = || announced.store(true, Ordering::Relaxed);
                scope.spawn(move || seat.with_first(announce, |order| order.push("first")));
                while !announced.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                order.push("worker");
            });
        });
        seat.with(|order| assert_eq!(order[..], ["worker", "first", "another", "another", "another"]));
    }

    #[test]
    fn work_that_panics_leaves_a_fresh_one() {
        let seat = Seat::new(|| 7_u32);
        let work = AssertUnwindSafe(|| {
            seat.with(|sum| {
                *sum = 8;
                panic!("as a mistake would");
            });
        });
        assert!(catch_unwind(work).is_err());
        assert_eq!(seat.with(|sum| *sum), 7);
    }
}
