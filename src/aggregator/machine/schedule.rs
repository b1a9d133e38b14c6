//! The scheduler's decisions carried out on hardware: runlist, doorbells, samples.

use std::time::Duration;

use super::state::Machine;
use crate::protocol::Doorbell;
use crate::steps::Step;
use crate::tenant::{ChannelState, Refusal, Tenant};
use gpuvmk_chip::addr::TenantId;
use gpuvmk_gpu::GpuError;
use gpuvmk_observe::latency;
use gpuvmk_scheduler::Gate;

impl Machine {
    /// A tenant rings; false if the doorbell is redundant. No allocation, no lookup beyond the tenant's own
    /// table.
    pub fn doorbell(&mut self, tenant: TenantId, doorbell: Doorbell, rung: u32, now: Duration) -> bool {
        let Some(owner) = self.tenants.get_mut(tenant) else { return false };
        let Some(Some(channel)) = owner.channels.get(usize::from(doorbell.channel.0)) else { return false };
        if matches!(channel.state, ChannelState::Faulted | ChannelState::Dead) {
            return false;
        }
        let (host, engines) = (channel.host, channel.engines);
        let has_work = !self.scheduler.is_redundant(host, doorbell.gp_put);
        // A VM that rings without work must not count as one that wants its turn. One with work may have
        // filled its ring since, of which hardware read the first entries in passing: the scheduler gets the
        // doorbell, but not as often as the VM rings.
        if !has_work
            && self.scheduler.may_run(host).is_none()
            && self.hardware.driver.channel_progress(host).is_ok_and(|fetched| fetched == doorbell.gp_put)
        {
            return false;
        }
        let is_done = |fetched| fetched == doorbell.gp_put;
        let tells = has_work
            && owner.delayed.is_some_and(|delayed| delayed.engines.intersects(engines))
            && self.hardware.driver.channel_progress(host).is_ok_and(is_done);
        match self.scheduler.doorbell(host, doorbell.gp_put, now) {
            Gate::Ring => {
                if self.hardware.ring(host) {
                    owner.doorbells.note(rung, latency::stamp());
                }
            }
            Gate::Decide => {
                if self.scheduler.looks_at_wakeups() {
                    self.look(now);
                }
                self.decide(now);
            }
            Gate::Hold => {}
        }
        if tells {
            self.notify_delayed(tenant, engines);
        }
        has_work
    }

    /// A tenant rings more often than is looked at.
    pub fn note_throttled(&mut self, tenant: TenantId) {
        if let Some(owner) = self.tenants.get_mut(tenant) {
            owner.counters.throttled = owner.counters.throttled.saturating_add(1);
        }
    }

    /// Does what is due. True when there is more to do at once.
    pub fn step(&mut self, now: Duration) -> bool {
        let start = self.clocks.nanos();
        self.look_and_decide(now);
        self.fail_for_lost_memory(now);
        let decided = self.clocks.nanos();
        let mut budget = self.slice(None, now);
        self.clocks.begin_turn();
        if self.hardware.driver.advance_pending(&mut budget) {
            self.clocks.poll_again();
        }
        let advanced = self.clocks.nanos();
        let more = self.advance_work(now);
        self.clocks.end_turn(now);
        let end = self.clocks.nanos();
        self.clocks.note(Step::Schedule, start, decided);
        self.clocks.note(Step::Driver, decided, advanced);
        self.clocks.note(Step::Work, advanced, end);
        more
    }

    /// Looks at engines, decides whose turn it is, and applies that to hardware.
    fn look_and_decide(&mut self, now: Duration) {
        self.scheduler.note_lateness(now);
        if self.scheduler.sample_due(now) {
            self.look(now);
            self.decide(now);
        } else if self.scheduler.review_due(now) {
            self.decide(now);
        }
        self.end_penalties(now);
        self.notify_due(now);
    }

    /// Looks at engines and rings.
    fn look(&mut self, now: Duration) {
        let driver = &mut self.hardware.driver;
        let (engines, times) = (driver.sample_engines(), driver.engine_times());
        let mut rings = Vec::new();
        self.scheduler.sample(now, &engines, &times, |channel| {
            let fetched = driver.channel_progress(channel).ok();
            rings.extend(fetched.map(|gp_get| (channel, gp_get)));
            fetched
        });
        self.schedule_recorder.record_sample(&engines, &self.scheduler, &self.channels, &self.tenants);
        self.watch(now, &engines, &rings);
    }

    /// When [`Machine::step`] is due without anything else happening.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        let preemptions = self
            .tenants
            .iter()
            .flat_map(|tenant| tenant.live_channels().filter_map(|(_, channel)| channel.preempt_by));
        // A tenant may have been admitted since the last step.
        let fresh = |tenant: &Tenant| tenant.is_preparing() && tenant.scrubbing.is_empty();
        let preparing = self.tenants.iter().any(fresh).then_some(now);
        self.channels
            .deadlines()
            .chain(preemptions)
            .chain(self.clocks.next_due())
            .chain(preparing)
            .chain(self.hangs.next_due())
            .chain(self.tenants.iter().filter_map(|tenant| tenant.delayed.map(|delayed| delayed.due)))
            .chain(self.scheduler.next_due())
            .min()
    }

    pub(super) fn decide(&mut self, now: Duration) {
        let Some(change) = self.scheduler.decide(now) else { return };
        self.schedule_recorder.record_switches(&change.switches, &self.tenants);
        if let Some(list) = change.runlist {
            // The channels that ran until now are charged before the change.
            let (engines, times) =
                (self.hardware.driver.sample_engines(), self.hardware.driver.engine_times());
            self.scheduler.cut(now, &engines, &times);
            if let Err(error) = self.hardware.commit_runlist(list) {
                log::error!("a runlist did not reach the physical GPU: {error}");
            }
        }
        for channel in change.preempt {
            self.hangs.watchdog.note_preemption(channel);
            self.hardware.preempt(channel);
        }
        for (channel, _) in change.ring {
            self.hardware.ring(channel);
        }
    }

    /// Takes over what a tenant wants to run, and commits it if hardware's runlist changes by it.
    pub(super) fn relist(&mut self, tenant: TenantId) -> Result<(), Refusal> {
        let list = self.tenants.sender(tenant)?.runnable();
        self.scheduler.set_list(tenant, list);
        Ok(self.commit_runlist()?)
    }

    pub(super) fn commit_runlist(&mut self) -> Result<(), GpuError> {
        self.hardware.commit_runlist(self.scheduler.runlist())
    }
}
