//! Who owns what engines can reach.

use std::time::Duration;

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova, TenantId};

/// The true owner of everything that engines can reach.
///
/// The aggregator labels memory and channels when it gives them out and takes them back. The software GPU
/// holds every access of an engine against the labels, and counts those that meet somebody else's memory. A
/// card has no ledger. Code that makes page tables never sees it, so it can be judged by it.
pub trait OwnershipLedger: Send + Sync {
    /// Labels a VRAM range; `None` is the host's own.
    fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>);
    /// Labels a bus-address range.
    fn own_system(&self, start: Iova, size: u64, owner: Option<TenantId>);
    /// Labels a channel.
    fn own_channel(&self, channel: HostChannel, owner: Option<TenantId>);
    /// Engine accesses of `tenant`'s channels that met memory of somebody else.
    fn foreign_accesses(&self, tenant: TenantId) -> u64;
    /// How long engines worked for `tenant`'s channels, for tests to judge what the host counts. A channel
    /// that still has its engine may be told of a time slice later.
    fn engine_time(&self, tenant: TenantId) -> Vec<(Engine, Duration)>;
    /// Engine accesses of the host's own channels that met a tenant's memory.
    fn foreign_accesses_of_host(&self) -> u64;
}
