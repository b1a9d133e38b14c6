//! Taking things back: channels that their guest gave up, resets, and tenants that are gone.
//!
//! A channel leaves in steps, none of which waits: start bit off, off the runlist, preempted; when hardware
//! has let it go, or at a deadline by force, it is destroyed. An address space is cleared at once, and lives
//! as long as a channel on hardware may use it. Then guest memory is unmapped and, in pieces between other
//! work, VRAM zeroed. What hardware does not let go is never given to anybody else.
//!
//! All that goes on by the clock: one slice for all tenants in a turn, each the first in its turn.

use std::ops::Bound;
use std::time::Duration;

use super::scrub::{self, Step};
use super::{Machine, Output};
use crate::limit::Limit;
use crate::protocol::{RefusalKind, Reply};
use crate::report::FailSafeReason;
use crate::tenant::{ChannelState, Job, Refusal, Space, TenantState, Withdrawal};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{GuestChannel, HostChannel, TenantId};
use gpuvmk_gpu::budget::CALL;
use gpuvmk_gpu::{Budget, Progress, SpaceHandle};
use gpuvmk_scheduler::hang::{Hang, Reason};

/// A host channel on its way off the hardware.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub host: HostChannel,
    pub tenant: TenantId,
    pub space: SpaceHandle,
    pub deadline: Duration,
    /// Hardware has let it go.
    pub left: bool,
}

/// An address space that its tenant gave up: to be cleared, and to be destroyed when no departing channel may
/// use it any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zombie {
    pub tenant: TenantId,
    pub space: SpaceHandle,
    /// Engines reach nothing through it any more.
    pub cleared: bool,
}

impl Machine {
    /// Takes a channel from its guest and starts taking it off the hardware.
    pub(super) fn retire_channel(&mut self, tenant: TenantId, id: GuestChannel, now: Duration) {
        let Some(owner) = self.tenants.get_mut(&tenant) else { return };
        let Some(channel) = owner.channels.get_mut(usize::from(id.0)).and_then(Option::take) else { return };
        let space = owner.spaces.get(&channel.space).map(|space| space.handle);
        owner.runlist.retain(|other| *other != id);
        self.scheduler.remove_channel(channel.host);
        self.hangs.watchdog.forget(channel.host);
        let (ChannelState::New | ChannelState::Used | ChannelState::Faulted, Some(space)) =
            (channel.state, space)
        else {
            return;
        };
        if let Some(owner) = self.owners.get_mut(&channel.host) {
            owner.guest = None;
        }
        self.departures.push(Departure {
            host: channel.host,
            tenant,
            space,
            deadline: now.saturating_add(self.hangs.preempt_within()),
            left: channel.state == ChannelState::New,
        });
        let off = self.driver.enable_channel(channel.host, false).and_then(|()| self.commit_runlist());
        if let Err(error) = off {
            self.quarantine(tenant, "stopping a channel", &error);
        }
        if channel.state == ChannelState::New {
            return;
        }
        if let Err(error) = self.driver.preempt_channel(channel.host) {
            self.quarantine(tenant, "preempting a channel", &error);
        }
        self.gpu_events(now);
    }

    /// Hardware let a departing channel go.
    pub(super) fn note_left(&mut self, host: HostChannel) {
        for departure in self.departures.iter_mut().filter(|departure| departure.host == host) {
            departure.left = true;
        }
    }

    /// Destroys channels that are off the hardware, or whose time is up, for as long as the budget lasts.
    /// True when there are more.
    pub(super) fn finish_departures(&mut self, tenant: TenantId, now: Duration, budget: &mut Budget) -> bool {
        loop {
            let over = |d: &Departure| d.tenant == tenant && (d.left || now >= d.deadline);
            let Some(index) = self.departures.iter().position(over) else { return false };
            if budget.is_spent() {
                return true;
            }
            let departure = self.departures.swap_remove(index);
            let resets = self.driver.engine_resets();
            if !self.forget_host_channel(departure.tenant, departure.host) {
                self.stuck_spaces.push(departure.space);
            }
            if !departure.left {
                self.charge_forced(tenant, resets, now);
            }
            budget.spend(CALL);
        }
    }

    /// Destroys a host channel and forgets whose it was. False when hardware does not let it go.
    pub(super) fn forget_host_channel(&mut self, tenant: TenantId, host: HostChannel) -> bool {
        match self.driver.destroy_channel(host) {
            Ok(()) => {
                self.owners.remove(&host);
                if let Some(ledger) = &self.ledger {
                    ledger.own_channel(host, None);
                }
                true
            }
            Err(error) => {
                // The number stays taken: the owner entry keeps late events from reaching anybody.
                self.quarantine(tenant, "destroying a channel", &error);
                false
            }
        }
    }

    /// Clears and destroys address spaces that a tenant gave up, for as long as the budget lasts. True when
    /// there is more to do at once.
    pub(super) fn advance_zombies(&mut self, tenant: TenantId, budget: &mut Budget) -> bool {
        let mut index = 0;
        while let Some(zombie) = self.zombies.get(index).copied() {
            if zombie.tenant != tenant {
                index = index.saturating_add(1);
                continue;
            }
            if budget.is_spent() {
                return true;
            }
            if !zombie.cleared {
                match self.driver.advance_clear(zombie.space, budget) {
                    Ok(Progress::Done) => {}
                    Ok(Progress::More) => return true,
                    Ok(Progress::Waits) => {
                        self.look_again();
                        return false;
                    }
                    Err(error) => self.quarantine(tenant, "clearing page tables", &error),
                }
                if let Some(zombie) = self.zombies.get_mut(index) {
                    zombie.cleared = true;
                }
            }
            if self.departures.iter().any(|d| d.space == zombie.space) {
                index = index.saturating_add(1);
                continue;
            }
            if self.stuck_spaces.contains(&zombie.space) {
                log::error!("an address space stays: a channel that hardware does not let go may use it");
            } else {
                match self.driver.advance_destroy_space(zombie.space, budget) {
                    Ok(Progress::Done) => {}
                    Ok(Progress::More | Progress::Waits) => return true,
                    Err(error) => self.quarantine(tenant, "destroying an address space", &error),
                }
            }
            self.zombies.remove(index);
        }
        false
    }

    /// Function reset. The answer follows when no channel of the tenant is on the hardware any more.
    pub(super) fn reset(&mut self, tenant: TenantId, scrub: bool, now: Duration) -> Result<(), Refusal> {
        let owner = self.tenant(tenant)?;
        let scrub_from = if scrub { 0 } else { owner.partition.size() };
        owner.state = TenantState::Resetting { scrub_from };
        let holder = owner.holder.clone();
        if scrub && self.cleanups.wait(&holder, now).is_some() {
            self.tenant(tenant)?.counters.met(Limit::Cleanups);
        }
        self.strip(tenant, now);
        Ok(())
    }

    /// A tenant's connection ended. With `peer_alive`, its process may still have the partition mapped, and
    /// [`Machine::peer_exited`] must follow before anybody else can get the memory.
    pub fn leave(&mut self, tenant: TenantId, peer_alive: bool, now: Duration) {
        let Some(owner) = self.tenants.get_mut(&tenant) else { return };
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
        let scrub = self.scrub.at_release();
        let scrub_from = if scrub { 0 } else { owner.partition.size() };
        owner.state = TenantState::Leaving { peer_alive, scrub_from, renew_from: 0, held: None };
        owner.job = None;
        owner.left = now;
        owner.leaving_since = now;
        self.strip(tenant, now);
    }

    /// The process of a tenant that left is gone.
    pub fn peer_exited(&mut self, tenant: TenantId) {
        if let Some(owner) = self.tenants.get_mut(&tenant)
            && let TenantState::Leaving { peer_alive, .. } = &mut owner.state
        {
            *peer_alive = false;
        }
    }

    /// Takes all channels and address spaces from a tenant: begins with it, and goes on by the clock.
    pub(super) fn strip(&mut self, tenant: TenantId, now: Duration) {
        if let Some(owner) = self.tenants.get_mut(&tenant) {
            owner.stripping = true;
            // Its next driver has not asked for what this one's work would have been told.
            owner.delayed = None;
        }
        let mut budget = self.slice(Some(tenant), now);
        self.advance_strip(tenant, now, &mut budget);
    }

    /// Goes on with that. True when there is more to do at once.
    fn advance_strip(&mut self, tenant: TenantId, now: Duration, budget: &mut Budget) -> bool {
        while let Some(owner) = self.tenants.get_mut(&tenant).filter(|owner| owner.stripping) {
            if budget.is_spent() {
                return true;
            }
            let first = owner.live_channels().next().map(|(id, _)| id);
            let Some(id) = first else {
                owner.stripping = false;
                owner.delayed = None;
                let spaces = std::mem::take(&mut owner.spaces).into_values();
                let zombie = |space: Space| Zombie { tenant, space: space.handle, cleared: false };
                self.zombies.extend(spaces.map(zombie));
                break;
            };
            self.retire_channel(tenant, id, now);
            budget.spend(CALL);
        }
        let departing = self.finish_departures(tenant, now, budget);
        self.advance_zombies(tenant, budget) || departing
    }

    /// Goes on with everybody's long work: what is being taken back, and requests that take long. One slice
    /// in all; who had none of it is the first in the next turn. True when there is more to do at once.
    pub(super) fn advance_work(&mut self, now: Duration) -> bool {
        let behind = self.tenants.range((Bound::Excluded(self.turn), Bound::Unbounded));
        let order: Vec<_> = behind.chain(self.tenants.range(..=self.turn)).map(|(id, _)| *id).collect();
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
            self.turn = tenant;
            more |= self.work_for(tenant, now, &mut budget);
        }
        more
    }

    fn has_work(&self, tenant: TenantId) -> bool {
        self.tenants
            .get(&tenant)
            .is_some_and(|t| t.job.is_some() || t.stripping || t.state != TenantState::Active)
            || self.departures.iter().any(|d| d.tenant == tenant)
            || self.zombies.iter().any(|z| z.tenant == tenant)
    }

    /// A tenant's turn.
    fn work_for(&mut self, tenant: TenantId, now: Duration, budget: &mut Budget) -> bool {
        // A request and a reset cost their VM's part of the thread; a departure is in everybody's interest.
        let pays = self
            .tenants
            .get(&tenant)
            .is_some_and(|t| t.is_resetting() || (t.state == TenantState::Active && t.job.is_some()));
        if pays && self.held(tenant, now) {
            return false;
        }
        let start = self.clock.now();
        let mut more = self.advance_strip(tenant, now, budget);
        if !budget.is_spent() {
            more |= self.advance_job(tenant, now, budget);
        }
        if !budget.is_spent() && self.tenants.get(&tenant).is_some_and(|t| t.state != TenantState::Active) {
            more |= self.advance_tenant(tenant, now);
        }
        let took = self.clock.now().saturating_sub(start);
        self.charge(tenant, Duration::from_nanos(took));
        more || (budget.is_spent() && self.has_work(tenant))
    }

    /// A guest's preemption that does not end: the channel holds an engine that others need. True when there
    /// are more.
    fn force_late_preemptions(&mut self, now: Duration, budget: &mut Budget) -> bool {
        let late: Vec<_> = self
            .tenants
            .values()
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
        if self.departures.iter().any(|d| d.tenant == id) || self.zombies.iter().any(|z| z.tenant == id) {
            return false;
        }
        let Some(tenant) = self.tenants.get_mut(&id) else { return false };
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
            if let Some(tenant) = self.tenants.get_mut(&id) {
                tenant.left = now;
            }
            return false;
        }
        // A reset waits that would have it zeroed too often; who leaves shall be gone.
        if tenant.is_resetting()
            && scrub_from == 0
            && let Some(until) = self.cleanups.wait(&tenant.holder, now)
        {
            self.hold_until(until);
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
        if self.tenants.get(&id).is_some_and(|tenant| !matches!(tenant.state, TenantState::Leaving { .. })) {
            self.label_partition(id);
        }
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if matches!(tenant.state, TenantState::Preparing { .. }) {
            if tenant.quarantined {
                let refusal = "the VM's video memory cannot be zeroed".to_owned();
                let reply = Reply::Refused { kind: RefusalKind::Hardware, message: refusal };
                // Its connection is all that is left of it: whoever has it hangs up.
                tenant.state = TenantState::Active;
                self.outputs.push(Output::Reply(id, reply));
            } else {
                tenant.state = TenantState::Active;
                self.outputs.push(Output::Ready(id));
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
                // No channel is on the hardware: nobody accesses it.
                if tenant.fail_safe.is_some_and(|now| now.reason == FailSafeReason::MemoryLost) {
                    tenant.owner.mend();
                }
                tenant.fail_safe = None;
                tenant.violations = 0;
                Reply::Done
            };
            self.outputs.push(Output::Reply(id, reply));
            return;
        }
        let Some(tenant) = self.tenants.remove(&id) else { return };
        if tenant.account.backlog() > 0 {
            self.accounts.insert(tenant.name.clone(), tenant.account.clone());
        }
        scrub::note_wanted(&mut self.departed, self.scheduler.wanting(id));
        self.scheduler.remove_vm(id);
        let hangs = self.hangs.take(id);
        self.standings.keep_hangs(&tenant.holder, hangs, now);
        if tenant.quarantined {
            log::error!(
                "{}: {} MiB of VRAM stay withheld until the aggregator restarts",
                tenant.name,
                tenant.partition.size() >> 20
            );
        } else {
            if let Some(ledger) = &self.ledger {
                ledger.own_vram(tenant.partition.start(), tenant.partition.size(), None);
            }
            self.cleanups.note_departure(&tenant.holder, tenant.partition.size(), now);
            let took = now.saturating_sub(tenant.left);
            scrub::note_departure(&mut self.departed, tenant.partition.size(), took);
            self.vram.give_back(tenant.partition);
            self.granted_channels = self.granted_channels.saturating_sub(tenant.channel_limit);
        }
        self.outputs.push(Output::Gone(id));
    }
}
