//! Penalties of VMs for hangs of their channels: none the first time, then a wait that doubles up to a cap,
//! and is forgiven after a time without hangs.
//!
//! Each hang costs all others a moment, so a VM that hangs on purpose would slow them down without end. While
//! a VM serves its penalty its doorbells wait; nothing is lost. With waits of at most `penalty_cap`, it can
//! hang no more than once in that time.

use std::time::Duration;

use crate::HangLimits;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_ordered::OrderedMap;

/// Hangs and penalty of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Hangs in all.
    pub hangs: u64,
    /// Engines that had to be reset for them.
    pub resets: u64,
    /// All waits that were imposed.
    pub penalty: Duration,
    /// Hangs in a row.
    streak: u32,
    last: Duration,
    /// When its wait is over.
    until: Option<Duration>,
}

/// The records of all VMs.
#[derive(Debug)]
pub struct Ledger {
    limits: HangLimits,
    vms: OrderedMap<TenantId, Record>,
}

impl Ledger {
    /// An empty one.
    pub const fn new(limits: HangLimits) -> Self {
        Self { limits, vms: OrderedMap::new() }
    }

    /// A channel of the VM hung. Returns how long the VM has to wait from now on.
    pub fn note(&mut self, vm: TenantId, now: Duration) -> Duration {
        let limits = self.limits;
        let record = self.vms.entry(vm).or_default();
        // Good time begins when the wait is over: serving a penalty is no merit.
        let since = record.until.unwrap_or(record.last).max(record.last);
        if record.hangs > 0 && now.saturating_sub(since) >= limits.forgive {
            record.streak = 0;
        }
        let wait = wait(&limits, record.streak);
        record.hangs = record.hangs.saturating_add(1);
        record.streak = record.streak.saturating_add(1);
        record.last = now;
        record.penalty = record.penalty.saturating_add(wait);
        record.until = (!wait.is_zero()).then(|| now.saturating_add(wait));
        wait
    }

    /// An engine had to be reset for a hang of the VM.
    pub fn note_reset(&mut self, vm: TenantId) {
        let record = self.vms.entry(vm).or_default();
        record.resets = record.resets.saturating_add(1);
    }

    /// Hangs and penalty of a VM.
    pub fn record(&self, vm: TenantId) -> Record {
        self.vms.get(&vm).copied().unwrap_or_default()
    }

    /// VMs whose wait is over by now; each is named once.
    pub fn released(&mut self, now: Duration) -> Vec<TenantId> {
        let mut released = Vec::new();
        for (vm, record) in &mut self.vms {
            if record.until.is_some_and(|until| now >= until) {
                // The end of the wait is where good time begins.
                record.last = record.until.take().unwrap_or(record.last);
                released.push(*vm);
            }
        }
        released
    }

    /// When the first wait is over.
    pub fn next_due(&self) -> Option<Duration> {
        self.vms.values().filter_map(|record| record.until).min()
    }

    /// The VM waits no more, and its next hang counts as its first.
    pub fn clear_hangs(&mut self, vm: TenantId) {
        if let Some(record) = self.vms.get_mut(&vm) {
            record.until = None;
            record.streak = 0;
        }
    }

    /// The VM is gone. Returns what is known of it, for when it comes back.
    pub fn take(&mut self, vm: TenantId) -> Record {
        self.vms.remove(&vm).unwrap_or_default()
    }

    /// A VM has come back, of which this is known. True if it has to wait still.
    pub fn restore(&mut self, vm: TenantId, mut record: Record, now: Duration) -> bool {
        if let Some(until) = record.until.filter(|until| *until <= now) {
            record.last = until;
            record.until = None;
        }
        let waits = record.until.is_some();
        if record != Record::default() {
            self.vms.insert(vm, record);
        }
        waits
    }
}

/// The wait after so many hangs in a row before this one.
fn wait(limits: &HangLimits, streak: u32) -> Duration {
    let Some(doublings) = streak.checked_sub(1) else { return Duration::ZERO };
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    limits.penalty.saturating_mul(factor).min(limits.penalty_cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: TenantId = TenantId(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn ledger() -> Ledger {
        Ledger::new(HangLimits {
            penalty: Duration::from_millis(100),
            penalty_cap: Duration::from_secs(1),
            forgive: Duration::from_secs(60),
            ..HangLimits::default()
        })
    }

    #[test]
    fn waits_double_from_the_second_hang_up_to_the_cap() {
        let mut ledger = ledger();

        let waits: Vec<_> = (0_u32..8).map(|turn| ledger.note(VM, SECOND * (turn * 2)).as_millis()).collect();

        assert_eq!(waits, [0, 100, 200, 400, 800, 1000, 1000, 1000]);
        assert_eq!(ledger.record(VM).hangs, 8);
        assert_eq!(ledger.record(VM).penalty, Duration::from_millis(4500));
    }

    #[test]
    fn a_hundred_hangs_do_not_overflow() {
        let mut ledger = ledger();
        for turn in 0..100 {
            assert!(ledger.note(VM, SECOND * turn) <= SECOND);
        }
        assert_eq!(ledger.note(VM, SECOND * 100), SECOND);
    }

    #[test]
    fn good_time_after_the_wait_is_forgiving_and_the_wait_itself_is_not() {
        let mut ledger = ledger();
        for turn in 0..6 {
            ledger.note(VM, SECOND * turn);
        }
        let until = ledger.next_due().unwrap();
        assert_eq!(ledger.released(until), [VM]);
        assert_eq!(ledger.released(until), []);

        let early = ledger.note(VM, until + SECOND * 59);
        ledger.released(until + SECOND * 60);
        let late = ledger.note(VM, until + SECOND * 121);

        assert_eq!((early, late), (SECOND, Duration::ZERO));
    }

    #[test]
    fn vms_have_records_of_their_own() {
        let mut ledger = ledger();
        ledger.note(VM, SECOND);
        ledger.note(VM, SECOND);
        assert_eq!(ledger.note(TenantId(2), SECOND), Duration::ZERO);
        assert_eq!(ledger.next_due(), Some(SECOND + Duration::from_millis(100)));

        let record = ledger.take(VM);

        assert_eq!(ledger.next_due(), None);
        assert_eq!(ledger.record(VM), Record::default());
        assert_eq!(record.hangs, 2);
    }

    #[test]
    fn vm_that_leaves_and_comes_back_goes_on_where_it_was() {
        let mut ledger = ledger();
        let waits = [0; 3].map(|_| ledger.note(VM, SECOND).as_millis());
        assert_eq!(waits, [0, 100, 200]);
        let again = TenantId(9);

        let record = ledger.take(VM);
        assert!(ledger.restore(again, record, SECOND), "its wait is not over");
        assert_eq!(ledger.next_due(), Some(SECOND + Duration::from_millis(200)));
        let record = ledger.take(again);
        assert!(!ledger.restore(again, record, SECOND * 2), "it is over meanwhile");

        assert_eq!(ledger.note(again, SECOND * 3), Duration::from_millis(400), "and counts");
    }

    #[test]
    fn without_a_penalty_nobody_ever_waits() {
        let mut ledger = Ledger::new(HangLimits { penalty: Duration::ZERO, ..HangLimits::default() });
        assert!((0..20).all(|turn| ledger.note(VM, SECOND * turn).is_zero()));
        assert_eq!(ledger.next_due(), None);
    }
}
