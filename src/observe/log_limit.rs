//! The log with a limit: what a guest or a client can cause, it can cause without end. Lines beyond the rate
//! are dropped and counted, and the next line that goes out is preceded by how many were.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, Log, Metadata, Record};

use gpuvmk_host::pace::Pace;

/// Lines a second until a configuration says otherwise.
pub const DEFAULT_LINES: u32 = 200;

/// Time for which unused lines are saved, for bursts.
const BURST: Duration = Duration::from_secs(5);

static WRITTEN: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static RATE: AtomicU32 = AtomicU32::new(DEFAULT_LINES);

/// Lines of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCounts {
    /// Lines a second.
    pub limit: u32,
    /// Lines that were written.
    pub written: u64,
    /// Lines that were dropped.
    pub dropped: u64,
}

/// Lines of this process so far.
pub fn counts() -> LogCounts {
    LogCounts {
        limit: RATE.load(Ordering::Relaxed),
        written: WRITTEN.load(Ordering::Relaxed),
        dropped: DROPPED.load(Ordering::Relaxed),
    }
}

/// From now on this many lines a second.
pub fn set_lines_per_second(lines: u32) {
    RATE.store(lines, Ordering::Relaxed);
}

/// A log that passes on what may go out.
#[derive(Debug)]
pub struct LimitedLog<L> {
    inner: L,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rate: u32,
    pace: Pace,
    dropped: u64,
}

impl<L: Log> LimitedLog<L> {
    /// Passes on to `inner`.
    pub fn new(inner: L) -> Self {
        let rate = RATE.load(Ordering::Relaxed);
        let state = State { rate, pace: Pace::new(rate, BURST), dropped: 0 };
        Self { inner, start: Instant::now(), state: Mutex::new(state) }
    }

    /// How many lines were dropped before this one; `None` when it is dropped as well.
    fn admit(&self, now: Duration) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = RATE.load(Ordering::Relaxed);
        if rate != state.rate {
            state.rate = rate;
            state.pace = Pace::new(rate, BURST);
        }
        if state.pace.allows(now) {
            WRITTEN.fetch_add(1, Ordering::Relaxed);
            return Some(std::mem::take(&mut state.dropped));
        }
        state.dropped = state.dropped.saturating_add(1);
        DROPPED.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl<L: Log> Log for LimitedLog<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.inner.enabled(record.metadata()) {
            return;
        }
        let Some(dropped) = self.admit(self.start.elapsed()) else { return };
        if dropped > 0 {
            let text = format_args!("{dropped} lines were dropped: more than the log may have in a second");
            let metadata = Metadata::builder().level(Level::Warn).target(record.target()).build();
            self.inner.log(&Record::builder().metadata(metadata).args(text).build());
        }
        self.inner.log(record);
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<String>>>);

    impl Log for Memory {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.level() <= Level::Info
        }

        fn log(&self, record: &Record<'_>) {
            self.0.lock().unwrap().push(record.args().to_string());
        }

        fn flush(&self) {}
    }

    fn say(log: &impl Log, level: Level, text: &str) {
        log.log(&Record::builder().level(level).args(format_args!("{text}")).build());
    }

    #[test]
    fn flood_is_cut_and_its_loss_is_told_with_the_next_line() {
        let memory = Memory::default();
        let log = LimitedLog::new(memory.clone());
        log.state.lock().unwrap().pace = Pace::new(10, Duration::from_millis(200));

        (0..1000).for_each(|i| say(&log, Level::Info, &format!("line {i}")));
        say(&log, Level::Debug, "not wanted");
        let written = memory.0.lock().unwrap().len();
        std::thread::sleep(Duration::from_millis(150));
        say(&log, Level::Info, "after");

        assert!((3..=5).contains(&written), "{written} lines");
        let lines = memory.0.lock().unwrap().clone();
        assert_eq!(lines.last().map(String::as_str), Some("after"));
        let told = format!("{} lines were dropped", 1000 - written);
        assert!(lines[lines.len() - 2].starts_with(&told), "{lines:?}");
        assert!(counts().dropped >= 900 && counts().written >= 4);
    }
}
