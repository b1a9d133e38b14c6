//! Who has the one thread when ([`crate::tenant::ThreadAccount`] has each tenant's part of it).

use std::time::Duration;

use super::Machine;
use crate::limit::Limit;
use crate::tenant::Tenant;
use gpuvmk_chip::addr::TenantId;

impl Machine {
    /// A tenant wants the thread: `None` when it may have it now, else when it may ask again.
    pub fn thread_wait(&mut self, id: TenantId, now: Duration) -> Option<Duration> {
        let others = self.who_wants(Some(id), now).count();
        let tenant = self.tenants.get_mut(&id)?;
        let until = tenant.thread.wait(others, now)?;
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
