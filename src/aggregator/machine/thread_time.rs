//! Who has how much of the one thread: what a tenant asks for costs its own share of the thread's time, so
//! that a flood of requests, updates or doorbells takes nothing from the others' shares.
//!
//! While only one tenant wants the thread it may have all of it (as far as its own limit allows). When others
//! do, each earns an equal part of the time that passes, saves up to [`BURST`] of it, and is not served while
//! it has overdrawn. A request is never interrupted: it overdraws by one piece at most (see [`super::jobs`]).

use std::time::Duration;

use super::Machine;
use crate::limit::Limit;
use crate::tenant::Tenant;
use gpuvmk_chip::addr::TenantId;

/// What a tenant may save. An honest guest's start-up is a burst of requests.
const BURST: Duration = Duration::from_millis(5);

/// A tenant that asked for something so long ago wants the thread no more.
const CONTENTION: Duration = Duration::from_millis(10);

/// One tenant's part of the thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadAccount {
    saved: Duration,
    overdrawn: Duration,
    settled: Duration,
    wanted: Option<Duration>,
    /// All time that it took.
    pub used: Duration,
    /// Most that it may have, in percent.
    pub most_percent: u32,
}

impl ThreadAccount {
    /// An account that may have `most_percent` of the thread.
    pub fn new(most_percent: u8) -> Self {
        Self {
            saved: BURST,
            overdrawn: Duration::ZERO,
            settled: Duration::ZERO,
            wanted: None,
            used: Duration::ZERO,
            most_percent: u32::from(most_percent).clamp(1, 100),
        }
    }

    fn is_wanted(&self, now: Duration) -> bool {
        self.wanted.is_some_and(|wanted| now.saturating_sub(wanted) < CONTENTION)
    }

    /// Earns what the time since the last call is worth at `percent`.
    fn settle(&mut self, now: Duration, percent: u32) {
        let earned = now.saturating_sub(self.settled).saturating_mul(percent) / 100;
        self.settled = self.settled.max(now);
        let rest = earned.saturating_sub(self.overdrawn);
        self.overdrawn = self.overdrawn.saturating_sub(earned);
        self.saved = self.saved.saturating_add(rest).min(BURST);
    }

    fn spend(&mut self, time: Duration) {
        self.used = self.used.saturating_add(time);
        self.overdrawn = self.overdrawn.saturating_add(time.saturating_sub(self.saved));
        self.saved = self.saved.saturating_sub(time);
    }
}

impl Machine {
    /// A tenant wants the thread: `None` when it may have it now, else when it may ask again.
    pub fn thread_wait(&mut self, id: TenantId, now: Duration) -> Option<Duration> {
        let others = self.who_wants(Some(id), now).count();
        let tenant = self.tenants.get_mut(&id)?;
        let account = &mut tenant.thread;
        let parts = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        let percent = (100 / parts).clamp(1, account.most_percent);
        account.wanted = account.wanted.max(Some(now));
        account.settle(now, percent);
        if percent == 100 {
            account.overdrawn = Duration::ZERO;
        }
        if account.overdrawn.is_zero() {
            return None;
        }
        let until = now.saturating_add(account.overdrawn.saturating_mul(100) / percent);
        // It waits, and so wants it for as long.
        account.wanted = Some(until);
        tenant.counters.met(Limit::ThreadTime);
        Some(until)
    }

    /// Who else than `id` wants the thread.
    fn who_wants(&self, id: Option<TenantId>, now: Duration) -> impl Iterator<Item = &Tenant> {
        self.tenants.values().filter(move |tenant| Some(tenant.id) != id && tenant.thread.is_wanted(now))
    }

    /// Whether anybody else than `id` does.
    pub(super) fn others_want(&self, id: Option<TenantId>, now: Duration) -> bool {
        self.who_wants(id, now).next().is_some()
    }

    /// A tenant took this much of the thread's time.
    pub fn charge(&mut self, id: TenantId, time: Duration) {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.thread.spend(time);
        }
    }

    /// Somebody waits until then.
    pub(super) fn hold_until(&mut self, until: Duration) {
        self.held_until = Some(self.held_until.map_or(until, |other| other.min(until)));
    }

    /// True when work of a tenant has to wait for its part of the thread; [`Machine::next_due`] knows until
    /// when.
    pub(super) fn held(&mut self, id: TenantId, now: Duration) -> bool {
        match self.thread_wait(id, now) {
            Some(until) => {
                self.hold_until(until);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn account_saves_a_burst_and_no_more() {
        let mut account = ThreadAccount::new(100);
        account.settle(MS * 1000, 50);
        account.spend(BURST);
        assert!(account.overdrawn.is_zero());

        account.spend(MS);

        assert_eq!(account.overdrawn, MS);
        account.settle(MS * 1001, 50);
        assert_eq!(account.overdrawn, MS / 2);
        account.settle(MS * 1003, 50);
        assert_eq!((account.overdrawn, account.saved), (Duration::ZERO, MS / 2));
        assert_eq!(account.used, BURST + MS);
    }
}
