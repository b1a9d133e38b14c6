//! Accounts are written and read: what hardware counted, what looks stand for, and the sums.

use std::time::Duration;

use super::channel::{Channel, LeavingChannel};
use super::meter::Part;
use super::sampling::{SampledTime, WINDOW};
use super::{Account, Scheduler};
use gpuvmk_chip::addr::{HostChannel, TenantId};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_ordered::OrderedMap;

impl Scheduler {
    /// Charges what hardware counted since the last time.
    pub(super) fn meter(
        &mut self,
        now: Duration,
        engines: &[(Engine, Option<HostChannel>)],
        times: &[(Engine, Duration)],
    ) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.metered, now));
        let channels = &self.channels;
        let with = |engine: Engine, found: &mut Vec<HostChannel>, also: fn(&Channel) -> bool| {
            let fits = |state: &Channel| state.engines.contains(engine.into()) && also(state);
            found.extend(channels.iter().filter(|(_, state)| fits(state)).map(|(channel, _)| *channel));
        };
        let parts = self.meter.read(
            engines,
            times,
            |engine, found| with(engine, found, |state| state.moved),
            |engine, found| with(engine, found, Channel::may_run),
        );
        let mut charged: OrderedMap<HostChannel, Duration> = OrderedMap::new();
        for Part { engine, channel, time } in parts {
            let Some(state) = self.channels.get(&channel) else { continue };
            let Some(vm) = self.vms.get_mut(&state.vm) else { continue };
            let account = vm.accounts.entry(engine).or_default();
            account.used = account.used.saturating_add(time);
            // Several engines at a time are charged as one.
            let before = charged.entry(channel).or_default();
            let time = time.min(passed.saturating_sub(*before));
            *before = before.saturating_add(time);
            let account = vm.accounts.entry(state.engine).or_default();
            account.charged = account.charged.saturating_add(time);
        }
        self.follow_leaving(now, engines);
    }

    /// Where hardware counts time, a look has to follow soon after an engine goes from one VM to the next:
    /// time that is counted between two looks is shared among the channels that were seen.
    fn follow_leaving(&mut self, now: Duration, engines: &[(Engine, Option<HostChannel>)]) {
        if !self.leaving(engines).engines().any(|engine| self.meter.counts(engine)) {
            self.leaving = None;
            return;
        }
        let since = self.leaving.map_or(now, |leaving| leaving.since);
        let after = (now.saturating_sub(since) / 8).clamp(self.pace().recheck, WINDOW);
        self.leaving = Some(LeavingChannel { since, look: now.saturating_add(after) });
    }

    /// Engines that run a channel which has to leave.
    pub(super) fn leaving(&self, engines: &[(Engine, Option<HostChannel>)]) -> EngineSet {
        let to_leave = |channel: HostChannel| self.channels.get(&channel).is_some_and(|state| !state.listed);
        let held = engines.iter().filter(|(_, running)| running.is_some_and(to_leave));
        held.fold(EngineSet::empty(), |set, (engine, _)| set | (*engine).into())
    }

    /// How long after now those who leave are looked at again, at the most.
    pub(super) fn next_follow(&self, now: Duration) -> Duration {
        self.leaving.map_or(WINDOW.saturating_mul(2), |leaving| leaving.look.saturating_sub(now))
    }

    /// Charges the time that a look stands for, on engines whose time hardware does not count.
    pub(super) fn charge(&mut self, sampled: &SampledTime) {
        let mut charged: Vec<HostChannel> = Vec::new();
        for (engine, channel) in sampled.seen.iter().filter(|(engine, _)| !self.meter.counts(*engine)) {
            let Some(state) = self.channels.get(channel) else { continue };
            let Some(vm) = self.vms.get_mut(&state.vm) else { continue };
            let account = vm.accounts.entry(*engine).or_default();
            account.used = account.used.saturating_add(sampled.length);
            // Once for a channel, however many engines run it.
            if !charged.contains(channel) {
                charged.push(*channel);
                let account = vm.accounts.entry(state.engine).or_default();
                account.charged = account.charged.saturating_add(sampled.length);
            }
        }
        for (engine, list) in &self.lists {
            for (id, vm) in self.vms.iter_mut().filter(|(id, _)| list.is_ready(**id)) {
                let account = vm.accounts.entry(*engine).or_default();
                account.wanting = account.wanting.saturating_add(sampled.length);
                if !list.admission.admits(*id) {
                    account.waiting = account.waiting.saturating_add(sampled.length);
                }
            }
        }
    }

    /// A VM's accounts by engine.
    pub fn accounts(&self, vm: TenantId) -> impl Iterator<Item = (Engine, &Account)> {
        self.vms.get(&vm).into_iter().flat_map(|vm| &vm.accounts).map(|(engine, account)| (*engine, account))
    }

    /// Engine time that a VM used, of all engines together.
    pub fn used(&self, vm: TenantId) -> Duration {
        self.accounts(vm).fold(Duration::ZERO, |sum, (_, account)| sum.saturating_add(account.used))
    }

    /// Time in which a VM had work that was not done, summed over engines, whether it ran or waited for its
    /// turn.
    pub fn wanting(&self, vm: TenantId) -> Duration {
        self.accounts(vm).fold(Duration::ZERO, |sum, (_, account)| sum.saturating_add(account.wanting))
    }

    /// Engine time that all present VMs used.
    pub fn used_by_all(&self) -> Duration {
        self.vms.keys().fold(Duration::ZERO, |sum, vm| sum.saturating_add(self.used(*vm)))
    }

    /// Doorbells of a VM.
    pub fn submissions(&self, vm: TenantId) -> u64 {
        self.accounts(vm).fold(0, |sum, (_, account)| sum.saturating_add(account.submissions))
    }
}
