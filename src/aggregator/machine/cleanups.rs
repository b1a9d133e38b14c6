//! How often the host cleans up after one VM: above all, how often it zeroes its VRAM. That is the host's work, which no
//! share of the GPU and no account of the thread is charged for; a VM that comes and goes, or resets itself, again and
//! again would have it done without end. So each name may have its memory zeroed a few times at once, and then no more
//! often than at a steady rate: its next reset, or the admission of who comes next under that name, waits.
//!
//! By name, because that is what stays of a VM: a device back end in its jail cannot connect again, and whoever starts
//! it again starts it under its name. Memory that nobody touched was zero already and does not count.

use std::collections::BTreeMap;
use std::time::Duration;

/// Times that all of a VM's memory may be zeroed at once.
const BURST: u64 = 4;

/// What a VM that leaves costs beside that, as a part of zeroing its memory.
const DEPARTURE: u64 = 8;

/// After that, once in this time.
const INTERVAL: Duration = Duration::from_secs(2);

/// What is kept beyond the burst: the longest wait is this many intervals.
const MOST_OVERDRAWN: u64 = 4;

/// Most names that are remembered.
const MAX_NAMES: usize = 256;

/// What was zeroed of late, by the VM's name.
#[derive(Clone, Debug, Default)]
pub(super) struct Cleanups {
    /// Nobody waits.
    pub unlimited: bool,
    names: BTreeMap<String, Account>,
}

/// One name's.
#[derive(Clone, Copy, Debug)]
struct Account {
    /// In units of [`INTERVAL`] divided by the VM's memory: the time that it takes to be forgotten.
    level: Duration,
    settled: Duration,
}

impl Account {
    fn level_at(&self, now: Duration) -> Duration {
        self.level.saturating_sub(now.saturating_sub(self.settled))
    }
}

/// Times that `bytes` of a VM with `memory` bytes take to be forgotten.
fn worth(bytes: u64, memory: u64) -> Duration {
    let nanos = INTERVAL.as_nanos().saturating_mul(bytes.into()).checked_div(memory.into()).unwrap_or(0);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn times(count: u64) -> Duration {
    INTERVAL.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

impl Cleanups {
    /// `bytes` of a VM with `memory` bytes were zeroed.
    pub fn note(&mut self, name: &str, bytes: u64, memory: u64, now: Duration) {
        if bytes == 0 || self.unlimited {
            return;
        }
        if !self.names.contains_key(name) {
            self.make_room(now);
            self.names.insert(name.to_owned(), Account { level: Duration::ZERO, settled: now });
        }
        let Some(account) = self.names.get_mut(name) else { return };
        let level = account.level_at(now).saturating_add(worth(bytes, memory));
        *account = Account { level: level.min(times(BURST.saturating_add(MOST_OVERDRAWN))), settled: now };
    }

    /// A VM with `memory` bytes is gone.
    pub fn note_departure(&mut self, name: &str, memory: u64, now: Duration) {
        self.note(name, memory / DEPARTURE, memory, now);
    }

    /// When a VM's memory may be zeroed again, if not now.
    pub fn wait(&self, name: &str, now: Duration) -> Option<Duration> {
        let over = self.names.get(name)?.level_at(now).saturating_sub(times(BURST));
        (!over.is_zero()).then(|| now.saturating_add(over))
    }

    /// Forgets whom nothing is remembered of, and if all have something, who has least.
    fn make_room(&mut self, now: Duration) {
        if self.names.len() < MAX_NAMES {
            return;
        }
        self.names.retain(|_, account| !account.level_at(now).is_zero());
        if self.names.len() >= MAX_NAMES
            && let Some(least) = self
                .names
                .iter()
                .min_by_key(|(_, account)| account.level_at(now))
                .map(|(name, _)| name.clone())
        {
            self.names.remove(&least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn few_times_at_once_and_then_a_steady_rate() {
        let mut cleanups = Cleanups::default();
        let mut now = SECOND;
        let mut zeroed = Vec::new();
        for _ in 0..10 {
            now = cleanups.wait("a", now).unwrap_or(now);
            cleanups.note("a", 64 * MIB, 64 * MIB, now);
            zeroed.push((now - SECOND).as_secs());
        }
        assert_eq!(zeroed, [0, 0, 0, 0, 0, 2, 4, 6, 8, 10]);
        assert_eq!(cleanups.wait("b", now), None, "others do not wait");
        assert_eq!(cleanups.wait("a", now + SECOND * 10), None);
    }

    #[test]
    fn part_of_the_memory_counts_as_a_part() {
        let mut cleanups = Cleanups::default();
        let pieces = (0..).take_while(|_| {
            cleanups.note("a", 4 * MIB, 64 * MIB, SECOND);
            cleanups.wait("a", SECOND).is_none()
        });
        assert_eq!(pieces.count(), 64);
    }

    #[test]
    fn wait_is_bounded_whatever_was_zeroed() {
        let mut cleanups = Cleanups::default();
        for _ in 0..1000 {
            cleanups.note("a", u64::MAX, 1, SECOND);
        }
        assert_eq!(cleanups.wait("a", SECOND), Some(SECOND * 9));
        cleanups.note("b", 1, 0, SECOND);
        assert_eq!(cleanups.wait("b", SECOND), None);
    }

    #[test]
    fn names_are_bounded_and_who_has_most_is_remembered() {
        let mut cleanups = Cleanups::default();
        (0..5).for_each(|_| cleanups.note("worst", MIB, MIB, SECOND));
        for number in 0..10_000 {
            cleanups.note(&number.to_string(), MIB, MIB, SECOND);
        }
        assert_eq!(cleanups.names.len(), MAX_NAMES);
        assert!(cleanups.wait("worst", SECOND).is_some());
    }
}
