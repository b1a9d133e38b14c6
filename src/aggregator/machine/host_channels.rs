//! Host channels: whom each works for, and those on their way off the hardware.

use std::time::Duration;

use gpuvmk_chip::addr::{GuestChannel, HostChannel, TenantId};
use gpuvmk_gpu::SpaceHandle;
use gpuvmk_ordered::OrderedMap;

/// Whom a host channel works for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub tenant: TenantId,
    /// `None` once the guest gave it up and it is only being taken off the hardware.
    pub guest: Option<GuestChannel>,
}

/// A host channel on its way off the hardware.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retiring {
    pub host: HostChannel,
    pub tenant: TenantId,
    pub space: SpaceHandle,
    /// When it is taken off by force.
    pub deadline: Duration,
    /// Hardware has let it go.
    pub left: bool,
}

/// Those of all tenants.
#[derive(Debug, Default)]
pub(super) struct HostChannels {
    owners: OrderedMap<HostChannel, Owner>,
    retiring: Vec<Retiring>,
}

impl HostChannels {
    pub fn owner(&self, host: HostChannel) -> Option<Owner> {
        self.owners.get(&host).copied()
    }

    /// A channel works for a tenant from now on.
    pub fn add(&mut self, host: HostChannel, tenant: TenantId, guest: GuestChannel) {
        self.owners.insert(host, Owner { tenant, guest: Some(guest) });
    }

    /// A channel is gone.
    pub fn remove(&mut self, host: HostChannel) {
        self.owners.remove(&host);
    }

    /// Its guest gave a channel up: it goes off the hardware.
    pub fn retire(&mut self, channel: Retiring) {
        if let Some(owner) = self.owners.get_mut(&channel.host) {
            owner.guest = None;
        }
        self.retiring.push(channel);
    }

    /// Hardware let a channel go.
    pub fn note_left(&mut self, host: HostChannel) {
        for channel in self.retiring.iter_mut().filter(|channel| channel.host == host) {
            channel.left = true;
        }
    }

    /// Channels of a tenant that are on their way off.
    pub fn retiring_of(&self, tenant: TenantId) -> usize {
        self.retiring.iter().filter(|channel| channel.tenant == tenant).count()
    }

    /// True if a channel on its way off may still use an address space.
    pub fn is_used(&self, space: SpaceHandle) -> bool {
        self.retiring.iter().any(|channel| channel.space == space)
    }

    /// True if a tenant has channels that are off the hardware, or whose time is up.
    pub fn has_retired(&self, tenant: TenantId, now: Duration) -> bool {
        self.position_of_retired(tenant, now).is_some()
    }

    /// Takes one of them, to be destroyed.
    pub fn take_retired(&mut self, tenant: TenantId, now: Duration) -> Option<Retiring> {
        let index = self.position_of_retired(tenant, now)?;
        Some(self.retiring.swap_remove(index))
    }

    fn position_of_retired(&self, tenant: TenantId, now: Duration) -> Option<usize> {
        let over = |channel: &Retiring| channel.tenant == tenant && (channel.left || now >= channel.deadline);
        self.retiring.iter().position(over)
    }

    /// When those on their way off are taken off by force.
    pub fn deadlines(&self) -> impl Iterator<Item = Duration> {
        self.retiring.iter().map(|channel| channel.deadline)
    }
}
