//! Guest cases, several at a time: one with a single guest uses about one processor, and waits for much of
//! its time.
//!
//! A case takes a seat for each guest that it runs at once, and one for each two processors of a guest with
//! more. One that needs more seats than there are runs alone, so guests never have fewer processors than two
//! guests on a machine of two have. Cases start in their order, but for those that wait for seats; what came
//! of them is in their order.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};
use gpuvmk_lab::interrupt;

use crate::cases::{Case, Guest};

/// The seats that `case` takes of `all`.
fn seats(case: &Case, all: usize) -> usize {
    let of = |guest: &Guest| guest.cpus.div_ceil(2);
    let wanted: u32 = case.guests.iter().map(of).sum();
    usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, all.max(1))
}

/// What waits for seats, and the seats that are free.
struct Queue<'a> {
    waiting: Vec<(usize, &'a Case)>,
    free: usize,
}

impl<'a> Queue<'a> {
    /// The first case for which there are seats; they are taken.
    fn next(&mut self, all: usize) -> Option<(usize, &'a Case)> {
        let place = self.waiting.iter().position(|(_, case)| seats(case, all) <= self.free)?;
        let (index, case) = self.waiting.remove(place);
        self.free = self.free.saturating_sub(seats(case, all));
        Some((index, case))
    }
}

/// Runs all cases by `run`, `all` seats at a time. An error if the user interrupts it.
pub fn run<T: Send>(cases: &[Case], all: usize, run: impl Fn(&Case) -> T + Sync) -> Result<Vec<T>> {
    let queue = Mutex::new(Queue { waiting: cases.iter().enumerate().collect(), free: all });
    let seats_free = Condvar::new();
    let work = || {
        let mut done = Vec::new();
        let mut left = queue.lock().unwrap_or_else(PoisonError::into_inner);
        while !left.waiting.is_empty() && interrupt::check().is_ok() {
            let Some((index, case)) = left.next(all) else {
                left = seats_free.wait(left).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(left);
            done.push((index, run(case)));
            left = queue.lock().unwrap_or_else(PoisonError::into_inner);
            left.free = left.free.saturating_add(seats(case, all));
            seats_free.notify_all();
        }
        done
    };
    let mut done = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..all.min(cases.len())).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            done.extend(worker.join().map_err(|_| anyhow!("a thread that ran guests panicked"))?);
        }
        Ok(())
    })?;
    interrupt::check()?;
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::cases;

    #[test]
    fn results_are_in_the_order_of_the_cases_and_seats_are_never_exceeded() {
        let cases = cases::all();
        let (taken, most) = (AtomicUsize::new(0), AtomicUsize::new(0));

        let names = run(&cases, 3, |case| {
            let now = taken.fetch_add(seats(case, 3), Ordering::SeqCst) + seats(case, 3);
            most.fetch_max(now, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2));
            taken.fetch_sub(seats(case, 3), Ordering::SeqCst);
            case.name.clone()
        })
        .unwrap();

        assert!(names.iter().eq(cases.iter().map(|case| &case.name)));
        assert_eq!(most.load(Ordering::SeqCst), 3, "all seats are used");
    }

    #[test]
    fn case_with_two_guests_or_many_processors_has_a_machine_of_two_alone() {
        let cases = cases::all();
        let seats = |name: &str| seats(cases.iter().find(|case| case.name == name).unwrap(), 2);
        assert_eq!(["two-guests", "gh100-smp-4", "backend-killed"].map(seats), [2, 2, 2]);
        assert_eq!(["native-7.2", "gh100-vulkan", "two-vgpus-in-one-guest"].map(seats), [1, 1, 1]);
    }

    #[test]
    fn one_seat_runs_everything_one_after_the_other() {
        let cases = cases::all();
        let running = AtomicUsize::new(0);
        let alone = run(&cases, 1, |_| {
            let before = running.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            running.fetch_sub(1, Ordering::SeqCst);
            before == 0
        });
        assert!(alone.unwrap().into_iter().all(|alone| alone));
    }
}
