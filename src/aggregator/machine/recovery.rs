//! Resets, and tenants that are gone: work that goes on by the clock, one slice for all tenants in a turn,
//! each the first in its turn.
//!
//! First channels and address spaces go (see [`super::retirement`]). Then guest memory is unmapped and, in
//! pieces between other work, VRAM zeroed.

use std::time::Duration;

use super::output::Output;
use super::scrub::Step;
use super::state::Machine;
use crate::limit::Limit;
use crate::protocol::{RefusalKind, Reply};
use crate::report::FailSafeReason;
use crate::tenant::{Job, Refusal, TenantState, Withdrawal};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_gpu::Budget;
use gpuvmk_gpu::budget::CALL;
use gpuvmk_scheduler::hang::{Hang, Reason};

impl Machine {
    /// Function reset. The answer follows when no channel of the tenant is on the hardware any more.
    pub(super) fn reset(&mut self, tenant: TenantId, scrub: bool, now: Duration) -> Result<(), Refusal> {
        let owner = self.tenants.sender(tenant)?;
        let scrub_from = if scrub { 0 } else { owner.partition.size() };
        owner.state = TenantState::Resetting { scrub_from };
        let holder = owner.holder.clone();
        if scrub && self.cleanup.rates.wait(&holder, now).is_some() {
            self.tenants.sender(tenant)?.limits.met(Limit::Cleanups);
        }
        self.strip(tenant, now);
        Ok(())
    }

    /// A tenant's connection ended. With `peer_alive`, its process may still have the partition mapped, and
    /// [`Machine::peer_exited`] must follow before another tenant can get the memory.
    pub fn leave(&mut self, tenant: TenantId, peer_alive: bool, now: Duration) {
        let Some(owner) = self.tenants.get_mut(tenant) else { return };
        if matches!(owner.state, TenantState::Leaving { .. }) {
            return;
        }
        let updates = owner.updates.summary();
        log::info!(
            "{}: left after {} updates of page tables, {} ns each in the driver (99 of 100: {})",
            owner.name,
            updates.count,
            updates.p50,
            updates.p99
        );
        let scrub = self.cleanup.policy.at_release();
        let scrub_from = if scrub { 0 } else { owner.partition.size() };
        owner.state = TenantState::Leaving { peer_alive, scrub_from, renew_from: 0, held: None };
        owner.job = None;
        owner.left = now;
        owner.leaving_since = now;
        self.strip(tenant, now);
    }

    /// The process of a tenant that left is gone.
    pub fn peer_exited(&mut self, tenant: TenantId) {
        if let Some(owner) = self.tenants.get_mut(tenant)
            && let TenantState::Leaving { peer_alive, .. } = &mut owner.state
        {
            *peer_alive = false;
        }
    }

    /// Goes on with everybody's long work: what is being taken back, and requests that take long. One slice
    /// in all; who had none of it is the first in the next turn. True when there is more to do at once.
    pub(super) fn advance_work(&mut self, now: Duration) -> bool {
        let order = self.tenants.in_turn();
        let first = order.iter().copied().find(|tenant| self.has_work(*tenant));
        let mut budget = self.slice(first, now);
        let mut more = self.force_late_preemptions(now, &mut budget);
        for tenant in order {
            if !self.has_work(tenant) {
                continue;
            }
            if budget.is_spent() {
                return true;
            }
            self.tenants.set_turn(tenant);
            more |= self.work_for(tenant, now, &mut budget);
        }
        more
    }

    fn has_work(&self, tenant: TenantId) -> bool {
        self.tenants
            .get(tenant)
            .is_some_and(|t| t.job.is_some() || t.stripping || t.state != TenantState::Active)
            || self.is_retiring(tenant)
    }

    /// True if channels or address spaces of a tenant are on their way.
    fn is_retiring(&self, tenant: TenantId) -> bool {
        self.channels.retiring_of(tenant) > 0 || self.retired_spaces.of(tenant).next().is_some()
    }

    /// True if work of a tenant has to wait for its part of the thread; [`Machine::next_due`] knows until
    /// when.
    fn is_held(&mut self, id: TenantId, now: Duration) -> bool {
        let until = self.tenants.thread_wait(id, now);
        if let Some(until) = until {
            self.clocks.hold_until(until);
        }
        until.is_some()
    }

    /// A tenant's turn.
    fn work_for(&mut self, tenant: TenantId, now: Duration, budget: &mut Budget) -> bool {
        // A request and a reset cost their VM's part of the thread; a departure is in everybody's interest.
        let pays = self
            .tenants
            .get(tenant)
            .is_some_and(|t| t.is_resetting() || (t.state == TenantState::Active && t.job.is_some()));
        if pays && self.is_held(tenant, now) {
            return false;
        }
        let start = self.clocks.nanos();
        let mut more = self.advance_strip(tenant, now, budget);
        if !budget.is_spent() {
            more |= self.advance_job(tenant, now, budget);
        }
        if !budget.is_spent() && self.tenants.get(tenant).is_some_and(|t| t.state != TenantState::Active) {
            more |= self.advance_tenant(tenant, now);
        }
        let took = self.clocks.nanos().saturating_sub(start);
        self.charge(tenant, Duration::from_nanos(took));
        more || (budget.is_spent() && self.has_work(tenant))
    }

    /// A guest's preemption that does not end: the channel holds an engine that others need. True when there
    /// are more.
    fn force_late_preemptions(&mut self, now: Duration, budget: &mut Budget) -> bool {
        let late: Vec<_> = self
            .tenants
            .iter()
            .flat_map(|t| t.live_channels().map(|(_, channel)| (t.id, *channel)))
            .filter(|(_, channel)| channel.preempt_by.is_some_and(|by| now >= by))
            .collect();
        for (tenant, channel) in late {
            if budget.is_spent() {
                return true;
            }
            let engine = channel.engines.engines().next().unwrap_or(Engine::Graphics);
            let reason = Reason::Unpreemptible;
            self.kill(Hang { channel: channel.host, vm: tenant, engine, reason }, now);
            budget.spend(CALL);
        }
        false
    }

    fn advance_tenant(&mut self, id: TenantId, now: Duration) -> bool {
        if self.is_retiring(id) {
            return false;
        }
        let Some(tenant) = self.tenants.get_mut(id) else { return false };
        if tenant.stripping || tenant.job.is_some() {
            return false;
        }
        if tenant.quarantined {
            self.conclude(id, now);
            return false;
        }
        let (scrub_from, leaves, peer_alive) = match tenant.state {
            TenantState::Active => return false,
            TenantState::Preparing { scrub_from } | TenantState::Resetting { scrub_from } => {
                (scrub_from, false, false)
            }
            TenantState::Leaving { peer_alive, scrub_from, .. } => (scrub_from, true, peer_alive),
        };
        if leaves && !tenant.memory.is_empty() {
            // A failure quarantines the tenant, which the next turn sees.
            tenant.job = Some(Job::Release(Withdrawal::new(tenant.memory.ranges().copied().collect())));
            return true;
        }
        if peer_alive {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.left = now;
            }
            return false;
        }
        // A reset waits that would have it zeroed too often; who leaves shall be gone.
        if tenant.is_resetting()
            && scrub_from == 0
            && let Some(until) = self.cleanup.rates.wait(&tenant.holder, now)
        {
            self.clocks.hold_until(until);
            return false;
        }
        match self.scrub_piece(id, scrub_from, now) {
            Step::More => return true,
            Step::Waits => return false,
            Step::Finished => {}
        }
        match self.renew_piece(id, now) {
            Step::More => return true,
            Step::Waits => return false,
            Step::Finished => {}
        }
        self.conclude(id, now);
        false
    }

    /// Everything of a reset or a departure is done.
    fn conclude(&mut self, id: TenantId, now: Duration) {
        if self.tenants.get(id).is_some_and(|tenant| !matches!(tenant.state, TenantState::Leaving { .. })) {
            self.label_partition(id);
        }
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if matches!(tenant.state, TenantState::Preparing { .. }) {
            if tenant.quarantined {
                let refusal = "the VM's video memory cannot be zeroed".to_owned();
                let reply = Reply::Refused { kind: RefusalKind::Hardware, message: refusal };
                // Only its connection is left: the service closes it.
                tenant.state = TenantState::Active;
                self.outbox.reply(id, reply);
            } else {
                tenant.state = TenantState::Active;
                self.outbox.push(Output::Ready(id));
            }
            return;
        }
        if matches!(tenant.state, TenantState::Resetting { .. }) {
            tenant.state = TenantState::Active;
            tenant.counters.resets = tenant.counters.resets.saturating_add(1);
            let reply = if tenant.quarantined {
                Reply::Refused {
                    kind: RefusalKind::Hardware,
                    message: "the physical GPU did not let go of the VM's work".to_owned(),
                }
            } else {
                // No channel is on the hardware, so the memory is not accessed.
                if tenant.fail_safe.is_some_and(|now| now.reason == FailSafeReason::MemoryLost) {
                    tenant.owner.restore_file();
                }
                tenant.fail_safe = None;
                tenant.violations = 0;
                Reply::Done
            };
            self.outbox.reply(id, reply);
            return;
        }
        let Some(tenant) = self.tenants.remove(id) else { return };
        self.cleanup.note_wanted(self.scheduler.wanting(id));
        self.scheduler.remove_vm(id);
        let hangs = self.hangs.take(id);
        self.holder_records.keep_hangs(&tenant.holder, hangs, now);
        if tenant.quarantined {
            log::error!(
                "{}: {} MiB of VRAM stay withheld until the aggregator restarts",
                tenant.name,
                tenant.partition.size() >> 20
            );
        } else {
            self.hardware.own_vram(tenant.partition.start(), tenant.partition.size(), None);
            let took = now.saturating_sub(tenant.left);
            self.cleanup.note_departure(&tenant.holder, tenant.partition.size(), took, now);
            self.resources.give_back(tenant.partition, tenant.channel_limit);
        }
        self.outbox.push(Output::Gone(id));
    }
}
