//! Threads that help an engine with its grids. They start with the core, before the jail closes, and sleep
//! while no grid wants them.

#![allow(unsafe_code, reason = "threads that are there already are lent work that borrows")]

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Work that borrows from its lender, who waits until nobody does it any more.
#[derive(Clone, Copy)]
struct Lent(NonNull<dyn Fn() + Sync>);

// SAFETY: a reference to what is `Sync` may go to another thread, and this is used as one.
unsafe impl Send for Lent {}

#[derive(Default)]
struct State {
    /// What members may begin.
    work: Option<Lent>,
    /// Members that are still wanted for it.
    wanted: usize,
    /// Members that do it.
    at_work: usize,
    /// Somebody lends, or waits for members to end.
    taken: bool,
    /// Members' threads are to end.
    closed: bool,
    /// What a member panicked with.
    panic: Option<Box<dyn Any + Send>>,
    /// How often members have helped.
    helped: u64,
}

/// Members that help whoever lends them work; one lender at a time. Others do their work alone.
#[derive(Default)]
pub(crate) struct Crew {
    /// Threads that call [`Crew::serve`].
    members: usize,
    state: Mutex<State>,
    /// Condition: a member is wanted, or the crew is closed.
    called: Condvar,
    /// Condition: a member has ended what it did.
    ended: Condvar,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("members", &self.members).finish_non_exhaustive()
    }
}

/// Takes work back when it goes, and waits until no member does it.
struct Lending<'a>(&'a Crew);

impl Drop for Lending<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.work, state.wanted) = (None, 0);
        while state.at_work > 0 {
            state = self.0.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken = false;
    }
}

impl Crew {
    /// A crew for which so many threads will call [`Crew::serve`].
    pub(crate) fn new(members: usize) -> Self {
        Self { members, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member's thread: helps until the crew is closed.
    pub(crate) fn serve(&self) {
        let mut state = self.lock();
        while !state.closed {
            let Some(Lent(work)) = state.work.filter(|_| state.wanted > 0) else {
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.wanted -= 1;
            state.at_work += 1;
            drop(state);
            // SAFETY: the lender's `Lending` keeps what is borrowed until `at_work`, which counts this thread
            // since the pointer was taken under the same lock, is 0 again.
            let done = catch_unwind(AssertUnwindSafe(|| unsafe { work.as_ref() }()));
            state = self.lock();
            state.helped += 1;
            state.at_work -= 1;
            state.panic = done.err().or_else(|| state.panic.take());
            self.ended.notify_all();
        }
    }

    /// Ends the members' threads once they have ended what they do.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.called.notify_all();
    }

    /// How often members have helped.
    #[cfg(test)]
    pub(crate) fn helped(&self) -> u64 {
        self.lock().helped
    }

    /// Lends work to members, if nobody else does.
    fn lend(&self, helpers: usize, work: &(dyn Fn() + Sync)) -> Option<Lending<'_>> {
        let mut state = self.lock();
        if state.taken || helpers == 0 {
            return None;
        }
        // SAFETY: only the lifetime changes. `Lending` ends before the borrow does, which the caller keeps.
        let work = unsafe { std::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
        (state.work, state.wanted, state.taken) = (Some(Lent(NonNull::from(work))), helpers, true);
        // Where the last lender panicked itself, nobody has asked for a member's.
        state.panic = None;
        drop(state);
        (0..helpers).for_each(|_| self.called.notify_one());
        Some(Lending(self))
    }
}

impl gpuvmk_sm::Crew for Crew {
    fn size(&self) -> usize {
        self.members + 1
    }

    fn together(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        let lending = self.lend(helpers.min(self.members), work);
        work();
        if let Some(lending) = lending {
            drop(lending);
            let panic = self.lock().panic.take();
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Barrier};

    use gpuvmk_sm::Crew as _;

    use super::*;

    /// Does something with a crew whose members' threads run.
    fn with<R>(members: usize, work: impl FnOnce(&Crew) -> R) -> R {
        let crew = Arc::new(Crew::new(members));
        let threads: Vec<_> = (0..members)
            .map(|_| {
                let crew = Arc::clone(&crew);
                std::thread::spawn(move || crew.serve())
            })
            .collect();
        let result = catch_unwind(AssertUnwindSafe(|| work(&crew)));
        crew.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    #[test]
    fn members_do_what_their_lender_does_and_are_waited_for() {
        with(2, |crew| {
            for _ in 0..100 {
                // All three are needed at once.
                let (barrier, calls) = (Barrier::new(3), AtomicUsize::new(0));
                crew.together(2, &|| {
                    barrier.wait();
                    std::thread::yield_now();
                    calls.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(calls.into_inner(), 3);
            }
            assert_eq!(crew.helped(), 200);
        });
    }

    #[test]
    fn no_more_are_called_than_are_wanted() {
        with(3, |crew| {
            for _ in 0..100 {
                let calls = AtomicUsize::new(0);
                crew.together(1, &|| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                });
                assert!((1..=2).contains(&calls.into_inner()));
            }
        });
    }

    #[test]
    fn a_second_lender_works_alone() {
        with(1, |crew| {
            let calls = AtomicUsize::new(0);
            crew.together(1, &|| {
                crew.together(1, &|| {
                    calls.fetch_add(1, Ordering::Relaxed);
                });
            });
            assert!((1..=2).contains(&calls.into_inner()));
        });
    }

    #[test]
    fn a_panic_of_one_lender_is_not_told_to_the_next() {
        with(1, |crew| {
            let barrier = Barrier::new(2);
            let both = || {
                barrier.wait();
                panic!("as a mistake would");
            };
            assert!(catch_unwind(AssertUnwindSafe(|| crew.together(1, &both))).is_err());
            crew.together(1, &|| {
                barrier.wait();
            });
            assert_eq!(crew.helped(), 2);
        });
    }

    #[test]
    fn a_member_that_panics_is_told_to_the_lender_and_goes_on() {
        with(1, |crew| {
            let barrier = Barrier::new(2);
            let own = std::thread::current().id();
            let mistaken = || {
                barrier.wait();
                assert_eq!(std::thread::current().id(), own, "as a mistake would");
            };
            assert!(catch_unwind(AssertUnwindSafe(|| crew.together(1, &mistaken))).is_err());
            crew.together(1, &|| {
                barrier.wait();
            });
            assert_eq!(crew.helped(), 2);
        });
    }
}
