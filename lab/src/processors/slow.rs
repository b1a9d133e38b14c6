//! When a processor was slow because the host of this machine gave it away.
//!
//! In a virtual machine a processor may work at a tenth of its speed for a while, and nothing inside says so:
//! no time is stolen by the kernel's books, and a thread that sleeps wakes up in time. So a thread on each
//! processor does the same small computation again and again, and counts its own processor time for it: what
//! other threads of this machine do makes that no longer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Between two computations.
const PAUSE: Duration = Duration::from_millis(4);
/// Steps of the computation: some ten microseconds.
const STEPS: u64 = 10_000;
/// So many times the shortest that any processor took is slow. Clocks that go up and down, and neighbours on
/// the same core, stay below.
const SLOW: u64 = 4;

/// By how many microseconds samples may be out of order.
const DISORDER: u64 = 1_000_000;

/// When a computation ended (microseconds of the monotonic clock), and its nanoseconds.
type Sample = (u64, u64);

/// Watches all processors that this process may use, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    samples: Arc<Mutex<Vec<Sample>>>,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    /// Begins.
    ///
    /// # Errors
    /// There are no threads left, or a processor cannot be chosen.
    pub fn start() -> Result<Self> {
        let mut watch = Self { samples: Arc::default(), ended: Arc::default(), threads: Vec::new() };
        for processor in super::usable()? {
            let (samples, ended) = (Arc::clone(&watch.samples), Arc::clone(&watch.ended));
            let thread = std::thread::Builder::new()
                .name(format!("speed-{processor}"))
                .spawn(move || look(processor, &samples, &ended))
                .context("No thread can be had")?;
            watch.threads.push(thread);
        }
        Ok(watch)
    }

    /// True if a processor was slow between two moments (microseconds of the monotonic clock).
    #[must_use]
    pub fn was_slow(&self, from: u64, to: u64) -> bool {
        // Every change of it is whole.
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        has_slow(&samples, from, to)
    }
}

fn has_slow(samples: &[Sample], from: u64, to: u64) -> bool {
    let least = samples.iter().map(|(_, took)| *took).min().unwrap_or(0);
    // Threads note what they found one after another: a sample may stand behind one that is a little younger.
    let recent = samples.iter().rev().take_while(|(end, _)| end.saturating_add(DISORDER) >= from);
    recent.filter(|(end, _)| (from..=to).contains(end)).any(|(_, took)| *took > least.saturating_mul(SLOW))
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing that could break.
            let _ = thread.join();
        }
    }
}

fn look(processor: usize, samples: &Mutex<Vec<Sample>>, ended: &AtomicBool) {
    let mut set = CpuSet::new();
    set.set(processor);
    // A processor that was taken away meanwhile is nobody's.
    if sched_setaffinity(None, &set).is_err() {
        return;
    }
    while !ended.load(Ordering::Relaxed) {
        let before = nanos(ClockId::ThreadCPUTime);
        let mut value = 1_u64;
        for step in 0..STEPS {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step));
        }
        std::hint::black_box(value);
        let took = nanos(ClockId::ThreadCPUTime).saturating_sub(before);
        let sample = (nanos(ClockId::Monotonic) / 1000, took);
        samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
        std::thread::sleep(PAUSE);
    }
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_is_what_took_several_times_the_shortest() {
        let samples = [(10, 100), (20, 390), (30, 450), (40, 100)];
        assert!(has_slow(&samples, 25, 35) && has_slow(&samples, 0, 50));
        assert!(!has_slow(&samples, 0, 25) && !has_slow(&samples, 31, 50) && !has_slow(&[], 0, 50));
    }

    #[test]
    fn every_processor_is_watched_and_others_work_is_not_slowness() {
        let watch = Watch::start().unwrap();
        let spins = Arc::clone(&watch.ended);
        // On all processors at once: the threads that look wait, and are not slow.
        let others: Vec<_> = (0..watch.threads.len())
            .map(|_| {
                let ended = Arc::clone(&spins);
                std::thread::spawn(move || while !ended.load(Ordering::Relaxed) {})
            })
            .collect();
        let count = watch.threads.len();
        while watch.samples.lock().unwrap().len() < 20 * count {
            std::thread::sleep(PAUSE);
        }
        let samples = watch.samples.lock().unwrap().clone();
        drop(watch);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        let mut took: Vec<u64> = samples.iter().map(|(_, took)| *took).collect();
        took.sort_unstable();
        assert!(took[0] > 0, "a computation takes time");
        assert!(took[took.len() / 2] < SLOW * took[0], "{took:?}");
    }
}
