//! A device backend's report about itself, for operators: whether it is in fail-safe state, and how far its
//! guest is from the limits that the backend enforces. The report is words in the memory of the doorbell
//! board, so it needs no message and no answer, and can be read when the backend hangs. It is not verified: a
//! wrong report affects only the sender's line of the status.

use gpuvmk_control_client::{DecidedBy, DriverCounters, FailSafeStatus, LimitStatus};

use super::counts;
use super::limit::Limit;
use super::shared::SharedWords;
use gpuvmk_chip::Engine;
use gpuvmk_fifo_virt::CopiedBytes;
use std::sync::atomic::Ordering;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $number:literal $name:literal,)*) => {
        /// Why a vGPU stopped serving its guest.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum FailSafeReason {
            $($(#[$doc])* $variant = $number,)*
        }

        impl FailSafeReason {
            /// All of them.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$variant),*];

            /// Its name in the status.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// The aggregator, or its physical GPU, is gone.
    AggregatorLost = 1 "aggregator_lost",
    /// A request that no honest device backend sends.
    ProtocolViolation = 2 "protocol_violation",
    /// The guest asked for more than a VM may have.
    QuotaExceeded = 3 "quota_exceeded",
    /// The physical GPU failed, or did not let go of the VM's work.
    HardwareFailed = 4 "hardware_failed",
    /// The guest's page tables point at too much that is not the guest's.
    ForeignMemory = 5 "foreign_memory",
    /// A page of the guest's memory could not be had.
    MemoryLost = 6 "memory_lost",
}

/// A vGPU's fail-safe state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailSafeState {
    /// The reason.
    pub reason: FailSafeReason,
    /// Since when, see [`millis`].
    pub since: u32,
    /// How long the decision took after its cause, in microseconds.
    pub decided_us: u32,
}

impl FailSafeState {
    /// Decided now, `took` after its cause.
    pub fn new(reason: FailSafeReason, took: std::time::Duration) -> Self {
        let decided_us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        Self { reason, since: millis(), decided_us }
    }

    /// The same for operators.
    pub fn status(self, decided_by: DecidedBy) -> FailSafeStatus {
        let for_ms = millis().wrapping_sub(self.since);
        FailSafeStatus { reason: self.reason.name().into(), decided_by, for_ms, decided_us: self.decided_us }
    }
}

/// The low word of the monotonic clock in milliseconds, which all processes of a machine share.
pub fn millis() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let millis = now.tv_sec.wrapping_mul(1000).wrapping_add(now.tv_nsec / 1_000_000);
    let [a, b, c, d, ..] = millis.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// A limit that the backend keeps. Counts stop at their largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The limit; 0 where there is none.
    pub limit: u32,
    /// The used amount.
    pub used: u32,
    /// Times that the limit was met.
    pub hits: u32,
}

/// A backend's report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Fail-safe state, if it is in it.
    pub fail_safe: Option<FailSafeState>,
    /// Times that it was.
    pub fail_safe_count: u32,
    /// Limits that it keeps.
    pub limits: Vec<(Limit, Usage)>,
}

/// Words before the limits.
const HEAD: usize = 4;
/// Words of a limit.
const USAGE: usize = 3;
/// Words of a report.
pub(super) const WORDS: usize = HEAD + Limit::ALL.len() * USAGE;

impl Report {
    /// Writes it to words from `at` on.
    pub(super) fn store(&self, words: &SharedWords, at: usize) {
        let store = |index: usize, value| words.word(at.wrapping_add(index)).store(value, Ordering::Relaxed);
        let now = self.fail_safe;
        store(1, now.map_or(0, |now| now.since));
        store(2, now.map_or(0, |now| now.decided_us));
        store(3, self.fail_safe_count);
        for (limit, usage) in &self.limits {
            let place = HEAD.wrapping_add((*limit as usize).wrapping_mul(USAGE));
            for (offset, value) in [usage.limit, usage.used, usage.hits].into_iter().enumerate() {
                store(place.wrapping_add(offset), value);
            }
        }
        // Last: a reader that sees the reason also sees its time.
        words.word(at).store(now.map_or(0, |now| now.reason as u32), Ordering::Release);
    }

    /// Reads one from words that its sender may change at any time; what means nothing is left out.
    pub(super) fn load(words: &SharedWords, at: usize) -> Self {
        let load = |index: usize| words.word(at.wrapping_add(index)).load(Ordering::Relaxed);
        let code = words.word(at).load(Ordering::Acquire);
        let reason = FailSafeReason::ALL.into_iter().find(|reason| *reason as u32 == code);
        let fail_safe = reason.map(|reason| FailSafeState { reason, since: load(1), decided_us: load(2) });
        let usage = |limit: Limit| {
            let place = HEAD.wrapping_add((limit as usize).wrapping_mul(USAGE));
            let [limit_, used, hits] = [0, 1, 2].map(|offset: usize| load(place.wrapping_add(offset)));
            let usage = Usage { limit: limit_, used, hits };
            (usage != Usage::default()).then_some((limit, usage))
        };
        Self {
            fail_safe,
            fail_safe_count: load(3),
            limits: Limit::ALL.into_iter().filter_map(usage).collect(),
        }
    }
}

/// Counts of copied bytes: one for each engine, and of entries that were not read.
const COPIED: usize = Engine::COUNT + 1;
/// Number of words of the sums.
pub(super) const COPIED_WORDS: usize = counts::words(COPIED);

/// Writes them to words from `at` on: the engines that copied. Sums never shrink, so the others' words are 0
/// as they were at first. Calls must not overlap.
pub(super) fn store_copied(copied: &CopiedBytes, words: &SharedWords, at: usize) {
    let engines = copied.by_engine().map(|(engine, bytes)| (usize::from(engine.place()), bytes));
    counts::store_some(engines.chain([(Engine::COUNT, copied.unread_entries)]), words, at);
}

/// Reads the sums from the shared words.
pub(super) fn load_copied(words: &SharedWords, at: usize) -> CopiedBytes {
    let [engines @ .., unread_entries] = counts::load::<COPIED>(words, at);
    let mut copied = CopiedBytes::of_unread(unread_entries);
    for (engine, bytes) in Engine::ALL.into_iter().zip(engines) {
        copied.add(engine, bytes);
    }
    copied
}

/// Number of words of what is counted of the driver.
pub(super) const DRIVER_WORDS: usize = counts::words(DriverCounters::NUMBERS);

/// Writes what is counted of the driver to words from `at` on. Calls must not overlap.
pub(super) fn store_driver(counters: &DriverCounters, words: &SharedWords, at: usize) {
    counts::store(counters.numbers(), words, at);
}

/// Reads it from the shared words.
pub(super) fn load_driver(words: &SharedWords, at: usize) -> DriverCounters {
    DriverCounters::from_numbers(counts::load(words, at))
}

impl From<Usage> for LimitStatus {
    fn from(usage: Usage) -> Self {
        let limit = (usage.limit != 0).then_some(usage.limit.into());
        Self { limit, used: usage.used.into(), hits: usage.hits.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn report_reads_back_and_is_taken_back() {
        let (words, _file) = SharedWords::create("test", 1).unwrap();
        let usage = Usage { limit: 100, used: 7, hits: u32::MAX };
        let report = Report {
            fail_safe: Some(FailSafeState {
                reason: FailSafeReason::ForeignMemory,
                since: 5,
                decided_us: 40,
            }),
            fail_safe_count: 3,
            limits: vec![(Limit::Flushes, usage), (Limit::Objects, Usage { used: 1, ..Usage::default() })],
        };

        report.store(&words, 100);
        assert_eq!(Report::load(&words, 100), report);
        Report { fail_safe: None, ..report.clone() }.store(&words, 100);

        assert_eq!(Report::load(&words, 100).fail_safe, None);
        assert_eq!(
            LimitStatus::from(usage),
            LimitStatus { limit: Some(100), used: 7, hits: u64::from(u32::MAX) }
        );
    }

    #[test]
    fn engines_that_copied_nothing_cost_no_store() {
        const AT: usize = 9;
        let (words, _file) = SharedWords::create("test", 1).unwrap();
        let mut copied = CopiedBytes::of_unread(3);
        copied.add(Engine::COPY2, 5 << 32 | 4096);
        copied.add(Engine::Sec2, 0);
        (AT..AT + COPIED_WORDS).for_each(|word| words.word(word).store(u32::MAX, Ordering::Relaxed));

        store_copied(&copied, &words, AT);

        let stored = |word: &usize| words.word(*word).load(Ordering::Relaxed) != u32::MAX;
        // The version, two words of the engine and two of the entries.
        let copy2 = AT + 1 + 2 * usize::from(Engine::COPY2.place());
        let last = AT + COPIED_WORDS;
        let found: Vec<_> = (AT..last).filter(stored).collect();
        assert_eq!(found, [AT, copy2, copy2 + 1, last - 2, last - 1]);
    }

    #[test]
    fn copied_bytes_are_read_whole_while_they_change() {
        let (words, file) = SharedWords::create("test", 1).unwrap();
        let theirs = SharedWords::open(file.as_fd(), 1).unwrap();
        let counts = |n: u64| {
            let mut copied = CopiedBytes::of_unread(n);
            Engine::ALL.into_iter().for_each(|engine| copied.add(engine, n << 20 | n));
            copied
        };
        let enough = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&enough);
        let sender = std::thread::spawn(move || {
            let mut last = 0;
            while !told.load(Ordering::Relaxed) {
                last += 1;
                store_copied(&counts(last), &theirs, 9);
                std::hint::black_box((0..50).sum::<u64>());
            }
            last
        });
        // A reading in which halves do not belong together is one that was tried too often.
        let whole = || {
            let now = load_copied(&words, 9);
            now == counts(now.unread_entries)
        };
        let seen = (0..1_000_000).filter(|_| whole()).take(1000).count();
        enough.store(true, Ordering::Relaxed);
        let last = sender.join().unwrap();
        assert_eq!(load_copied(&words, 9), counts(last));
        assert_eq!(seen, 1000);
    }

    proptest! {
        #[test]
        fn random_words_are_a_report_or_nothing(values in prop::collection::vec(any::<u32>(), WORDS)) {
            let (words, _file) = SharedWords::create("test", 1).unwrap();
            for (index, value) in values.iter().enumerate() {
                words.word(index).store(*value, Ordering::Relaxed);
            }
            let report = Report::load(&words, 0);
            prop_assert!(report.limits.len() <= Limit::ALL.len());
        }
    }
}
