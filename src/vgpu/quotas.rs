//! Limits of a guest's cost in its own device backend, and how close it is to them.
//!
//! A guest that asks too often waits: its processor stands still in the access until the rate allows the next
//! one. So nothing is lost, nothing is answered wrongly, and an honest guest that has a burst notices
//! nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpuvmk_aggregator::limit::Limit;
use gpuvmk_aggregator::report::Usage;
use gpuvmk_backend::ObjectUsage;
use gpuvmk_counters::Kept;
use gpuvmk_host::pace::Pace;
use gpuvmk_observe::log_limit;
use gpuvmk_pci::InterruptSink;

/// Time for which a guest may save up an unused rate.
const BURST: Duration = Duration::from_millis(50);

/// Limits that a mediator keeps for its guest. Rates are per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Pages of one address space that point outside the guest's memory.
    pub bad_pages: u32,
    /// Number of TLB flushes.
    pub flushes: u32,
    /// Requests to the aggregator.
    pub requests: u32,
    /// Interrupts to the guest.
    pub interrupts: u32,
    /// Guest page tables that are followed; `None`: what suits the chip.
    pub guest_tables: Option<u32>,
    /// Pieces that guest memory may be announced in.
    pub memory_ranges: u32,
}

impl Default for Quotas {
    /// None: for tests and benchmarks, whose guests are honest.
    fn default() -> Self {
        Self {
            bad_pages: u32::MAX,
            flushes: 0,
            requests: 0,
            interrupts: 0,
            guest_tables: None,
            memory_ranges: 65_535,
        }
    }
}

/// A rate that is kept by waiting.
#[derive(Debug)]
pub struct Rate {
    start: Instant,
    limit: u32,
    /// `None`: there is no limit.
    pace: Option<Mutex<Pace>>,
    asked: AtomicU64,
    waits: Kept,
}

impl Rate {
    /// `per_second`; 0 for any.
    pub fn new(per_second: u32) -> Self {
        let pace = (per_second > 0).then(|| Mutex::new(Pace::new(per_second, BURST)));
        let start = Instant::now();
        Self { start, limit: per_second, pace, asked: AtomicU64::new(0), waits: Kept::default() }
    }

    /// Counts one, and waits until it may be. True when it had to wait.
    pub fn admit(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let Some(pace) = &self.pace else { return false };
        let now = self.start.elapsed();
        let wait = pace.lock().unwrap_or_else(PoisonError::into_inner).wait(now);
        if wait.is_zero() {
            return false;
        }
        self.waits.one();
        // Waits on a lock's system call, which every jailed thread may make.
        std::thread::park_timeout(wait);
        true
    }

    fn usage(&self) -> Usage {
        Usage {
            limit: self.limit,
            used: word(self.asked.load(Ordering::Relaxed)),
            hits: word(self.waits.get()),
        }
    }
}

/// The rates of a vGPU, and when it met its other limits.
#[derive(Debug)]
pub struct Meters {
    quotas: Quotas,
    /// Rate of TLB flushes.
    pub flushes: Rate,
    /// Requests to the aggregator.
    pub requests: Rate,
    /// Interrupts to the guest.
    pub interrupts: Rate,
    bad_pages: AtomicU64,
    too_many_bad_pages: Kept,
    too_many_tables: Kept,
    /// Objects of a driver that asks firmware for them, once it did.
    objects: Mutex<Option<Usage>>,
}

impl Meters {
    /// Nothing happened yet.
    pub fn new(quotas: Quotas) -> Self {
        Self {
            quotas,
            flushes: Rate::new(quotas.flushes),
            requests: Rate::new(quotas.requests),
            interrupts: Rate::new(quotas.interrupts),
            bad_pages: AtomicU64::new(0),
            too_many_bad_pages: Kept::default(),
            too_many_tables: Kept::default(),
            objects: Mutex::default(),
        }
    }

    /// A walk found so many pages that point outside the guest's memory. True when they are too many.
    pub fn bad_pages(&self, pages: u64) -> bool {
        self.bad_pages.store(pages, Ordering::Relaxed);
        let too_many = pages > u64::from(self.quotas.bad_pages);
        if too_many {
            self.too_many_bad_pages.one();
        }
        too_many
    }

    /// The guest's page tables are too many.
    pub fn too_many_tables(&self) {
        self.too_many_tables.one();
    }

    /// The driver has so many objects. True when some were refused.
    pub fn objects(&self, now: ObjectUsage) -> bool {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let hits = objects.unwrap_or_default().hits.saturating_add(now.refused);
        *objects = Some(Usage { limit: now.limit, used: now.used, hits });
        now.refused > 0
    }

    /// All of them, for operators; `tables` are followed of at most `most_tables`.
    pub fn usage(&self, tables: usize, most_tables: usize) -> Vec<(Limit, Usage)> {
        let log = log_limit::counts();
        let bad_pages = Usage {
            limit: self.quotas.bad_pages,
            used: word(self.bad_pages.load(Ordering::Relaxed)),
            hits: word(self.too_many_bad_pages.get()),
        };
        let guest_tables = Usage {
            limit: u32::try_from(most_tables).unwrap_or(u32::MAX),
            used: u32::try_from(tables).unwrap_or(u32::MAX),
            hits: word(self.too_many_tables.get()),
        };
        let log_lines = Usage { limit: log.limit, used: word(log.written), hits: word(log.dropped) };
        let objects = *self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = vec![
            (Limit::GuestTables, guest_tables),
            (Limit::BadPages, bad_pages),
            (Limit::Flushes, self.flushes.usage()),
            (Limit::Requests, self.requests.usage()),
            (Limit::Interrupts, self.interrupts.usage()),
            (Limit::LogLines, log_lines),
        ];
        all.extend(objects.map(|objects| (Limit::Objects, objects)));
        all
    }
}

fn word(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A guest's interrupts at their rate. A level costs as much as a message when it rises: it is signalled too.
pub struct PacedInterrupts<F> {
    sink: Arc<dyn InterruptSink>,
    meters: Arc<Meters>,
    waited: F,
}

impl<F: Fn() + Send + Sync> PacedInterrupts<F> {
    /// Passes on to `sink`, and calls `waited` after an interrupt that came too early.
    pub fn new(sink: Arc<dyn InterruptSink>, meters: Arc<Meters>, waited: F) -> Self {
        Self { sink, meters, waited }
    }

    fn admit(&self) {
        if self.meters.interrupts.admit() {
            (self.waited)();
        }
    }
}

impl<F: Fn() + Send + Sync> InterruptSink for PacedInterrupts<F> {
    fn set_intx(&self, asserted: bool) {
        if asserted {
            self.admit();
        }
        self.sink.set_intx(asserted);
    }

    fn fire_msi(&self, vector: u16) {
        self.admit();
        self.sink.fire_msi(vector);
    }

    fn message_sent(&self, vector: u16) {
        // None is sent again before the function has said so, which it does after this.
        self.admit();
        self.sink.message_sent(vector);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_slowed_to_its_rate_and_counted() {
        let rate = Rate::new(10_000);
        let start = Instant::now();
        for _ in 0..1500 {
            rate.admit();
        }
        let took = start.elapsed();

        // 500 go at once.
        assert!(took >= Duration::from_millis(95), "{took:?}");
        let Usage { limit, used, hits } = rate.usage();
        assert_eq!((limit, used), (10_000, 1500));
        assert!((1..=1000).contains(&hits), "{hits}");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let rate = Rate::new(0);
        assert!(!(0..10_000).any(|_| rate.admit()));
        assert_eq!(rate.usage(), Usage { limit: 0, used: 10_000, hits: 0 });
    }

    #[derive(Default)]
    struct Sink(AtomicU64);

    impl InterruptSink for Sink {
        fn set_intx(&self, _asserted: bool) {}

        fn fire_msi(&self, _vector: u16) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn message_sent(&self, _vector: u16) {}
    }

    #[test]
    fn storm_of_messages_is_slowed_and_none_is_lost() {
        let sink = Arc::new(Sink::default());
        let meters = Arc::new(Meters::new(Quotas { interrupts: 5_000, ..Quotas::default() }));
        let waits = Arc::new(AtomicU64::new(0));
        let counted = waits.clone();
        let paced = PacedInterrupts::new(sink.clone(), meters.clone(), move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });

        let start = Instant::now();
        (0..500).for_each(|_| paced.fire_msi(0));

        assert!(start.elapsed() >= Duration::from_millis(45));
        assert_eq!(sink.0.load(Ordering::Relaxed), 500);
        let usage = meters.usage(0, 0);
        let (_, interrupts) = usage.iter().find(|(limit, _)| *limit == Limit::Interrupts).unwrap();
        assert!(interrupts.used == 500 && interrupts.hits > 0, "{interrupts:?}");
        assert_eq!(waits.load(Ordering::Relaxed), u64::from(interrupts.hits));
    }
}
