//! Channels and address spaces that a tenant gave up, or that are taken from it.
//!
//! A channel leaves in steps, none of which waits: start bit off, off the runlist, preempted; when hardware
//! has let it go, or at a deadline by force, it is destroyed. An address space is cleared at once, and lives
//! as long as a channel on hardware may use it. Resources that hardware does not let go are never reused.

use std::time::Duration;

use super::host_channels::Retiring;
use super::state::Machine;
use crate::tenant::ChannelState;
use gpuvmk_chip::addr::{GuestChannel, HostChannel, TenantId};
use gpuvmk_gpu::budget::CALL;
use gpuvmk_gpu::{Budget, Progress};

impl Machine {
    /// Takes a channel from its guest and starts taking it off the hardware.
    pub(super) fn retire_channel(&mut self, tenant: TenantId, id: GuestChannel, now: Duration) {
        let Some(owner) = self.tenants.get_mut(tenant) else { return };
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
        self.channels.retire(Retiring {
            host: channel.host,
            tenant,
            space,
            deadline: now.saturating_add(self.hangs.preempt_within()),
            left: channel.state == ChannelState::New,
        });
        let off =
            self.hardware.driver.enable_channel(channel.host, false).and_then(|()| self.commit_runlist());
        if let Err(error) = off {
            self.quarantine(tenant, "stopping a channel", &error);
        }
        if channel.state == ChannelState::New {
            return;
        }
        if let Err(error) = self.hardware.driver.preempt_channel(channel.host) {
            self.quarantine(tenant, "preempting a channel", &error);
        }
        self.gpu_events(now);
    }

    /// Destroys channels that are off the hardware, or whose time is up, for as long as the budget lasts.
    /// True when there are more.
    pub(super) fn destroy_retired_channels(
        &mut self,
        tenant: TenantId,
        now: Duration,
        budget: &mut Budget,
    ) -> bool {
        while self.channels.has_retired(tenant, now) {
            if budget.is_spent() {
                return true;
            }
            let Some(retired) = self.channels.take_retired(tenant, now) else { return false };
            let resets = self.hardware.driver.engine_resets();
            if !self.destroy_host_channel(retired.tenant, retired.host) {
                self.retired_spaces.withhold(retired.space);
            }
            if !retired.left {
                self.charge_forced(tenant, resets, now);
            }
            budget.spend(CALL);
        }
        false
    }

    /// Destroys a host channel and forgets whose it was. False when hardware does not let it go.
    pub(super) fn destroy_host_channel(&mut self, tenant: TenantId, host: HostChannel) -> bool {
        match self.hardware.destroy_channel(host) {
            Ok(()) => {
                self.channels.remove(host);
                true
            }
            Err(error) => {
                // The number stays taken: the owner entry keeps late events from reaching another tenant.
                self.quarantine(tenant, "destroying a channel", &error);
                false
            }
        }
    }

    /// Clears and destroys address spaces that a tenant gave up, for as long as the budget lasts. True when
    /// there is more to do at once.
    pub(super) fn advance_retired_spaces(&mut self, tenant: TenantId, budget: &mut Budget) -> bool {
        let Self { retired_spaces, channels, hardware, .. } = self;
        let mut failures = Vec::new();
        let progress = retired_spaces.advance(tenant, channels, hardware, budget, &mut failures);
        for (what, error) in failures {
            self.quarantine(tenant, what, &error);
        }
        if progress == Progress::Waits {
            self.clocks.poll_again();
        }
        progress == Progress::More
    }

    /// Begins to take all channels and address spaces from a tenant; the rest is done by the clock.
    pub(super) fn strip(&mut self, tenant: TenantId, now: Duration) {
        if let Some(owner) = self.tenants.get_mut(tenant) {
            owner.stripping = true;
            // Its next driver must not get notifications of this one's work.
            owner.delayed = None;
        }
        let mut budget = self.slice(Some(tenant), now);
        self.advance_strip(tenant, now, &mut budget);
    }

    /// Goes on with that. True when there is more to do at once.
    pub(super) fn advance_strip(&mut self, tenant: TenantId, now: Duration, budget: &mut Budget) -> bool {
        while let Some(owner) = self.tenants.get_mut(tenant).filter(|owner| owner.stripping) {
            if budget.is_spent() {
                return true;
            }
            let first = owner.live_channels().next().map(|(id, _)| id);
            let Some(id) = first else {
                owner.stripping = false;
                owner.delayed = None;
                for space in std::mem::take(&mut owner.spaces).into_values() {
                    self.retired_spaces.add(tenant, space.handle);
                }
                break;
            };
            self.retire_channel(tenant, id, now);
            budget.spend(CALL);
        }
        let retiring = self.destroy_retired_channels(tenant, now, budget);
        self.advance_retired_spaces(tenant, budget) || retiring
    }
}
