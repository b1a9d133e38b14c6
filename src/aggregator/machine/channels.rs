//! Channels: the guest's numbers on one side, host channels with instance blocks of our own on the other.

use std::time::Duration;

use super::state::Machine;
use crate::limit::Limit;
use crate::protocol::{Event, RefusalKind};
use crate::tenant::{Channel, ChannelShape, ChannelState, Refusal};
use gpuvmk_chip::addr::{GuestChannel, TenantId};
use gpuvmk_chip::stream::MAX_GPFIFO_ENTRIES_LOG2;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::{ChannelSpec, Progress};

/// How long a preemption may take before the channel is forced off: a channel yields within a time slice of
/// about 1 ms; a guest's driver gives up after 2 s.
const PREEMPT_DEADLINE: Duration = Duration::from_millis(500);

impl Machine {
    /// Makes a channel, or waits until its memory is reachable: then all of it is done and checked again.
    pub(super) fn create_channel(
        &mut self,
        tenant: TenantId,
        shape: &ChannelShape,
    ) -> Result<Progress, Refusal> {
        let id = shape.id;
        let retiring = self.channels.retiring_of(tenant);
        let va_bits = self.hardware.info.va_bits;
        let present = self.hardware.info.engines;
        let granule = self.hardware.info.userd_granule;
        let owner = self.tenants.sender(tenant)?;
        let limit = owner.channel_limit;
        match owner.channels.get(usize::from(id.0)) {
            None => {
                return Err(Refusal::met(
                    Limit::Channels,
                    RefusalKind::BadId,
                    format!("channel {} is not below {limit}", id.0),
                ));
            }
            Some(Some(_)) => {
                return Err(Refusal::new(RefusalKind::BadId, format!("channel {} exists already", id.0)));
            }
            Some(None) => {}
        }
        let live = owner.live_channels().count();
        if live.saturating_add(retiring) >= usize::from(limit) {
            return Err(Refusal::met(
                Limit::Channels,
                RefusalKind::Exhausted,
                format!(
                    "all {limit} channels of this VM are in use ({retiring} are being taken off the hardware)"
                ),
            ));
        }
        let space = owner.space(shape.space)?;
        let userd = owner
            .partition
            .translate(shape.userd, granule)
            .filter(|_| shape.userd.is_aligned(granule))
            .ok_or_else(|| {
                Refusal::new(
                    RefusalKind::OutsidePartition,
                    format!(
                        "USERD at {} is not an aligned {granule:#x} bytes of the VM's {:#x} bytes of VRAM",
                        shape.userd,
                        owner.partition.size()
                    ),
                )
            })?;
        if shape.gpfifo.0.checked_shr(u32::from(va_bits)).is_some_and(|above| above != 0)
            || !shape.gpfifo.is_aligned(8)
        {
            return Err(Refusal::new(
                RefusalKind::Protocol,
                format!("GPFIFO at {} is unaligned or beyond {va_bits} address bits", shape.gpfifo),
            ));
        }
        if shape.gpfifo_entries_log2 > MAX_GPFIFO_ENTRIES_LOG2 {
            return Err(Refusal::new(
                RefusalKind::Protocol,
                format!(
                    "a GPFIFO of 2^{} entries; at most 2^{MAX_GPFIFO_ENTRIES_LOG2}",
                    shape.gpfifo_entries_log2
                ),
            ));
        }
        if !present.contains(shape.engines) {
            return Err(Refusal::new(RefusalKind::Protocol, "an engine that the GPU does not have"));
        }
        let context_of = match shape.context_of {
            None => None,
            Some(other) => {
                let known = owner.channels.get(usize::from(other.0)).and_then(Option::as_ref);
                let known = known.filter(|known| {
                    let with_graphics = |engines: EngineSet| engines.contains(Engine::Graphics.into());
                    with_graphics(known.engines) && with_graphics(shape.engines)
                });
                let host = known.ok_or_else(|| {
                    Refusal::new(
                        RefusalKind::BadId,
                        format!("channel {} cannot share a graphics context with {}", id.0, other.0),
                    )
                })?;
                Some(host.host)
            }
        };
        let made = self.hardware.driver.advance_channel(ChannelSpec {
            space: space.handle,
            gpfifo: shape.gpfifo,
            gpfifo_entries_log2: shape.gpfifo_entries_log2,
            userd,
            engines: shape.engines,
            context_of,
        })?;
        let Some(host) = made else { return Ok(Progress::Waits) };
        self.hardware.own_channel(host, tenant);
        self.channels.add(host, tenant, id);
        self.scheduler.add_channel(host, tenant, shape.engines, shape.gpfifo_entries_log2);
        let owner = self.tenants.sender(tenant)?;
        if let Some(slot) = owner.channels.get_mut(usize::from(id.0)) {
            *slot = Some(Channel {
                host,
                space: shape.space,
                engines: shape.engines,
                enabled: false,
                state: ChannelState::New,
                preempt_by: None,
            });
        }
        // A number that was on the list before it existed is on it now.
        self.relist(tenant)?;
        Ok(Progress::Done)
    }

    pub(super) fn destroy_channel(
        &mut self,
        tenant: TenantId,
        id: GuestChannel,
        now: Duration,
    ) -> Result<(), Refusal> {
        self.tenants.sender(tenant)?.channel(id)?;
        self.retire_channel(tenant, id, now);
        let mut budget = self.slice(Some(tenant), now);
        self.destroy_retired_channels(tenant, now, &mut budget);
        Ok(())
    }

    pub(super) fn set_engines(
        &mut self,
        tenant: TenantId,
        id: GuestChannel,
        engines: EngineSet,
    ) -> Result<(), Refusal> {
        if !self.hardware.info.engines.contains(engines) {
            return Err(Refusal::new(RefusalKind::Protocol, "an engine that the GPU does not have"));
        }
        let owner = self.tenants.sender(tenant)?;
        let channel = owner.channel(id)?;
        if channel.enabled || channel.preempt_by.is_some() {
            return Err(Refusal::new(
                RefusalKind::Protocol,
                format!("engines of channel {} change only while it is stopped", id.0),
            ));
        }
        let (host, dead) = (channel.host, channel.state == ChannelState::Dead);
        if !dead {
            self.hardware.driver.set_channel_engines(host, engines)?;
            self.scheduler.set_engines(host, engines);
        }
        let owner = self.tenants.sender(tenant)?;
        let before = std::mem::replace(&mut owner.channel(id)?.engines, engines);
        self.notify_delayed(tenant, engines.difference(before));
        Ok(())
    }

    pub(super) fn create_object(
        &mut self,
        tenant: TenantId,
        id: GuestChannel,
        class: u32,
        engine: Engine,
    ) -> Result<(), Refusal> {
        let channel = self.tenants.sender(tenant)?.channel(id)?;
        if !channel.engines.contains(engine.into()) {
            let message = format!("channel {} has no context on {engine:?} for class {class:#06x}", id.0);
            return Err(Refusal::new(RefusalKind::Class, message));
        }
        match channel.state {
            ChannelState::Faulted | ChannelState::Dead => Ok(()),
            ChannelState::New | ChannelState::Used => {
                let host = channel.host;
                Ok(self.hardware.driver.create_object(host, class, engine)?)
            }
        }
    }

    pub(super) fn enable_channel(
        &mut self,
        tenant: TenantId,
        id: GuestChannel,
        enabled: bool,
    ) -> Result<(), Refusal> {
        let channel = self.tenants.sender(tenant)?.channel(id)?;
        channel.enabled = enabled;
        let host = channel.host;
        match channel.state {
            // A channel that a fault stopped stays stopped until it is made anew.
            ChannelState::Faulted | ChannelState::Dead => Ok(()),
            ChannelState::New | ChannelState::Used => {
                if enabled {
                    channel.state = ChannelState::Used;
                }
                Ok(self.hardware.driver.enable_channel(host, enabled)?)
            }
        }
    }

    pub(super) fn set_runlist(&mut self, tenant: TenantId, list: &[GuestChannel]) -> Result<(), Refusal> {
        let owner = self.tenants.sender(tenant)?;
        let mut seen = vec![false; usize::from(owner.channel_limit)];
        for id in list {
            owner.channel(*id)?;
            match seen.get_mut(usize::from(id.0)) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    return Err(Refusal::new(
                        RefusalKind::BadId,
                        format!("channel {} is on the runlist twice", id.0),
                    ));
                }
            }
        }
        owner.runlist = list.to_vec();
        self.relist(tenant)
    }

    pub(super) fn preempt(
        &mut self,
        tenant: TenantId,
        id: GuestChannel,
        now: Duration,
    ) -> Result<(), Refusal> {
        let channel = self.tenants.sender(tenant)?.channel(id)?;
        let host = channel.host;
        if matches!(channel.state, ChannelState::New | ChannelState::Dead) {
            self.outbox.event(tenant, Event::Preempted(id));
            return Ok(());
        }
        channel.preempt_by = Some(now.saturating_add(PREEMPT_DEADLINE));
        self.hardware.driver.preempt_channel(host)?;
        // Mostly the channel is not on the hardware at all, and the answer is there already.
        self.gpu_events(now);
        Ok(())
    }
}
