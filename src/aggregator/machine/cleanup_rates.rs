//! How often the host cleans up after one VM: above all, how often it zeroes its VRAM. That is the host's
//! work, which is charged to no share of the GPU and to no account of the thread. A VM that comes and goes,
//! or resets itself, again and again would cause it without end. So each VM may have its memory zeroed a few
//! times at once, and then at a steady rate only: its next reset, or its next admission, waits.
//!
//! Rates are kept by [`Holder`], which stays the same over connections and which a back end cannot choose.
//! Untouched memory was zero already and does not count.

use std::time::Duration;

use crate::tenant::Holder;
use gpuvmk_ordered::OrderedMap;

/// Times that all of a VM's memory may be zeroed at once.
const BURST: u64 = 4;

/// The other cost of a VM that leaves, as a fraction (one part in so many) of zeroing its memory.
const DEPARTURE: u64 = 8;

/// After that, once in this time.
const INTERVAL: Duration = Duration::from_secs(2);

/// Limit of debt: the longest wait is this many intervals.
const MOST_OVERDRAWN: u64 = 4;

/// Most who are remembered.
const MAX_HOLDERS: usize = 256;

/// Recent zeroing, by holder.
#[derive(Clone, Debug, Default)]
pub(super) struct CleanupRates {
    /// True when no VM ever waits.
    pub unlimited: bool,
    holders: OrderedMap<Holder, Account>,
}

/// One of them.
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

impl CleanupRates {
    /// `bytes` of a VM with `memory` bytes were zeroed.
    pub fn note(&mut self, holder: &Holder, bytes: u64, memory: u64, now: Duration) {
        if bytes == 0 || self.unlimited {
            return;
        }
        if !self.holders.contains_key(holder) {
            self.make_room(now);
            self.holders.insert(holder.clone(), Account { level: Duration::ZERO, settled: now });
        }
        let Some(account) = self.holders.get_mut(holder) else { return };
        let level = account.level_at(now).saturating_add(worth(bytes, memory));
        *account = Account { level: level.min(times(BURST.saturating_add(MOST_OVERDRAWN))), settled: now };
    }

    /// A VM with `memory` bytes is gone.
    pub fn note_departure(&mut self, holder: &Holder, memory: u64, now: Duration) {
        self.note(holder, memory / DEPARTURE, memory, now);
    }

    /// When a VM's memory may be zeroed again, if not now.
    pub fn wait(&self, holder: &Holder, now: Duration) -> Option<Duration> {
        let over = self.holders.get(holder)?.level_at(now).saturating_sub(times(BURST));
        (!over.is_zero()).then(|| now.saturating_add(over))
    }

    /// Forgets whom nothing is remembered of, and if all have something, who has least.
    fn make_room(&mut self, now: Duration) {
        if self.holders.len() < MAX_HOLDERS {
            return;
        }
        self.holders.retain(|_, account| !account.level_at(now).is_zero());
        if self.holders.len() >= MAX_HOLDERS
            && let Some(least) = self
                .holders
                .iter()
                .min_by_key(|(_, account)| account.level_at(now))
                .map(|(holder, _)| holder.clone())
        {
            self.holders.remove(&least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    fn vm(name: &str) -> Holder {
        Holder::Own(name.to_owned())
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn few_times_at_once_and_then_a_steady_rate() {
        let mut rates = CleanupRates::default();
        let mut now = SECOND;
        let mut zeroed = Vec::new();
        for _ in 0..10 {
            now = rates.wait(&vm("a"), now).unwrap_or(now);
            rates.note(&vm("a"), 64 * MIB, 64 * MIB, now);
            zeroed.push((now - SECOND).as_secs());
        }
        assert_eq!(zeroed, [0, 0, 0, 0, 0, 2, 4, 6, 8, 10]);
        assert_eq!(rates.wait(&vm("b"), now), None, "others do not wait");
        assert_eq!(rates.wait(&vm("a"), now + SECOND * 10), None);
    }

    #[test]
    fn part_of_the_memory_counts_as_a_part() {
        let mut rates = CleanupRates::default();
        let pieces = (0..).take_while(|_| {
            rates.note(&vm("a"), 4 * MIB, 64 * MIB, SECOND);
            rates.wait(&vm("a"), SECOND).is_none()
        });
        assert_eq!(pieces.count(), 64);
    }

    #[test]
    fn wait_is_bounded_whatever_was_zeroed() {
        let mut rates = CleanupRates::default();
        for _ in 0..1000 {
            rates.note(&vm("a"), u64::MAX, 1, SECOND);
        }
        assert_eq!(rates.wait(&vm("a"), SECOND), Some(SECOND * 9));
        rates.note(&vm("b"), 1, 0, SECOND);
        assert_eq!(rates.wait(&vm("b"), SECOND), None);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_who_has_most_is_remembered() {
        let mut rates = CleanupRates::default();
        (0..5).for_each(|_| rates.note(&vm("worst"), MIB, MIB, SECOND));
        for number in 0..10_000 {
            rates.note(&vm(&number.to_string()), MIB, MIB, SECOND);
        }
        assert_eq!(rates.holders.len(), MAX_HOLDERS);
        assert!(rates.wait(&vm("worst"), SECOND).is_some());
    }
}
