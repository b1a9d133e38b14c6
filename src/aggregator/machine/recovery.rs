//! Taking things back: channels that their guest gave up, resets, and tenants that are gone.
//!
//! A channel leaves in steps, none of which waits: start bit off, off the runlist, preempted; when hardware has
//! let it go, or at a deadline by force, it is destroyed. An address space lives as long as a channel on
//! hardware may use it. Then guest memory is unmapped and, in pieces between other work, VRAM zeroed. What
//! hardware does not let go is never given to anybody else.

use std::time::{Duration, Instant};

use super::scrub::Step;
use super::{Machine, Output};
use crate::addr::{GuestChannel, HostChannel, TenantId};
use crate::aggregator::limit::Limit;
use crate::aggregator::protocol::{RefusalKind, Reply};
use crate::aggregator::tenant::{ChannelState, Refusal, Tenant, TenantState};
use crate::chip::Engine;
use crate::gpu::SpaceHandle;
use crate::scheduler::hang::{Hang, Reason};

/// A host channel on its way off the hardware.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub host: HostChannel,
    pub tenant: TenantId,
    pub space: SpaceHandle,
    pub deadline: Duration,
}

/// An address space that its tenant gave up while a departing channel may still use it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zombie {
    pub tenant: TenantId,
    pub space: SpaceHandle,
}

impl Machine {
    /// Takes a channel from its guest and starts taking it off the hardware.
    pub(super) fn retire_channel(&mut self, tenant: TenantId, id: GuestChannel, now: Duration) {
        let Some(owner) = self.tenants.get_mut(&tenant) else { return };
        let Some(channel) = owner.channels.get_mut(usize::from(id.0)).and_then(Option::take) else { return };
        let space = owner.spaces.get(&channel.space).map(|space| space.handle);
        owner.runlist.retain(|other| *other != id);
        owner.refresh_engines();
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
        });
        let off = self.driver.enable_channel(channel.host, false).and_then(|()| self.commit_runlist());
        if let Err(error) = off {
            self.quarantine(tenant, "stopping a channel", &error);
        }
        if channel.state == ChannelState::New {
            self.finish_departure(channel.host);
            return;
        }
        if let Err(error) = self.driver.preempt_channel(channel.host) {
            self.quarantine(tenant, "preempting a channel", &error);
        }
        self.gpu_events(now);
    }

    /// The hardware let a departing channel go, or its time is up.
    pub(super) fn finish_departure(&mut self, host: HostChannel) {
        let Some(index) = self.departures.iter().position(|d| d.host == host) else { return };
        let departure = self.departures.swap_remove(index);
        if !self.forget_host_channel(departure.tenant, host) {
            self.stuck_spaces.push(departure.space);
        }
        self.bury_zombies();
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

    /// Gives up an address space: now, or when the last departing channel that uses it is gone.
    pub(super) fn bury_space(&mut self, tenant: TenantId, space: SpaceHandle) {
        self.zombies.push(Zombie { tenant, space });
        self.bury_zombies();
    }

    fn bury_zombies(&mut self) {
        let mut kept = Vec::new();
        for zombie in std::mem::take(&mut self.zombies) {
            if self.departures.iter().any(|d| d.space == zombie.space) {
                kept.push(zombie);
            } else if self.stuck_spaces.contains(&zombie.space) {
                log::error!("an address space stays: a channel that hardware does not let go may use it");
            } else if let Err(error) = self.driver.destroy_space(zombie.space) {
                self.quarantine(zombie.tenant, "destroying an address space", &error);
            }
        }
        self.zombies = kept;
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
        owner.state = TenantState::Leaving { peer_alive, scrub_from };
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

    /// Takes all channels and address spaces from a tenant. Engines reach nothing of it through its page
    /// tables when this returns, whatever its channels still do.
    pub(super) fn strip(&mut self, tenant: TenantId, now: Duration) {
        for space in self.spaces_of(tenant) {
            if let Err(error) = self.driver.clear_space(space) {
                self.quarantine(tenant, "clearing page tables", &error);
            }
        }
        let ids: Vec<_> = self
            .tenants
            .get(&tenant)
            .map(|owner| owner.live_channels().map(|(id, _)| id).collect())
            .unwrap_or_default();
        for id in ids {
            self.retire_channel(tenant, id, now);
        }
        let spaces = self.tenants.get_mut(&tenant).map(|owner| {
            // Its next driver has not asked for what this one's work would have been told.
            owner.owed = None;
            std::mem::take(&mut owner.spaces)
        });
        for space in spaces.unwrap_or_default().into_values() {
            self.bury_space(tenant, space.handle);
        }
    }

    /// Goes on with everything that is being taken back. True when there is more to do at once.
    pub(super) fn advance_recovery(&mut self, now: Duration) -> bool {
        let late = self.departures.iter().filter(|d| now >= d.deadline).map(|d| (d.tenant, d.host));
        for (tenant, host) in late.collect::<Vec<_>>() {
            let resets = self.driver.engine_resets();
            self.finish_departure(host);
            self.charge_forced(tenant, resets, now);
        }
        self.force_late_preemptions(now);
        let changing: Vec<_> =
            self.tenants.values().filter(|t| t.state != TenantState::Active).map(|t| t.id).collect();
        let mut more = false;
        for tenant in changing {
            // A reset costs its VM's part of the thread; a departure is in everybody's interest.
            let resets = self.tenants.get(&tenant).is_some_and(Tenant::is_resetting);
            if resets && self.held(tenant, now) {
                continue;
            }
            let start = Instant::now();
            more |= self.advance_tenant(tenant, now);
            self.charge(tenant, start.elapsed());
        }
        more
    }

    /// A guest's preemption that does not end: the channel holds an engine that others need.
    fn force_late_preemptions(&mut self, now: Duration) {
        let late: Vec<_> = self
            .tenants
            .values()
            .flat_map(|t| t.live_channels().map(|(_, channel)| (t.id, *channel)))
            .filter(|(_, channel)| channel.preempt_by.is_some_and(|by| now >= by))
            .collect();
        for (tenant, channel) in late {
            let engine = channel.engines.engines().next().unwrap_or(Engine::Graphics);
            let reason = Reason::Unpreemptible;
            self.kill(Hang { channel: channel.host, vm: tenant, engine, reason }, now);
        }
    }

    fn advance_tenant(&mut self, id: TenantId, now: Duration) -> bool {
        if self.departures.iter().any(|d| d.tenant == id) || self.zombies.iter().any(|z| z.tenant == id) {
            return false;
        }
        let Some(tenant) = self.tenants.get(&id) else { return false };
        if tenant.quarantined {
            self.conclude(id, now);
            return false;
        }
        let (scrub_from, range, peer_alive) = match tenant.state {
            TenantState::Active => return false,
            TenantState::Preparing { scrub_from } | TenantState::Resetting { scrub_from } => {
                (scrub_from, None, false)
            }
            TenantState::Leaving { peer_alive, scrub_from } => {
                (scrub_from, tenant.memory.ranges().next().copied(), peer_alive)
            }
        };
        if let Some(range) = range {
            // A failure quarantines the tenant, which the next turn sees.
            let _ = self.release_range(id, range);
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
                tenant.fail_safe = None;
                tenant.violations = 0;
                Reply::Done
            };
            self.outputs.push(Output::Reply(id, reply));
            return;
        }
        let Some(tenant) = self.tenants.remove(&id) else { return };
        self.departed.note_wanted(self.scheduler.wanting(id));
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
            self.departed.note(tenant.partition.size(), now.saturating_sub(tenant.left));
            self.vram.give_back(tenant.partition);
            self.granted_channels = self.granted_channels.saturating_sub(tenant.channel_limit);
        }
        self.outputs.push(Output::Gone(id));
    }
}
