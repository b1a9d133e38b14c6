//! The true owner of memory and channels.

use std::time::Duration;

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova, TenantId};

/// The true owner of everything that engines can reach.
///
/// The aggregator labels memory and channels when it gives them out and takes them back. The software GPU
/// checks every access of an engine against the labels, and counts accesses to memory of another owner. A
/// card has no ledger. Code that makes page tables never sees the ledger, so the ledger is an independent
/// check of it.
pub trait OwnershipLedger: Send + Sync {
    /// Labels a VRAM range; `None` is the host's own.
    fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>);
    /// Labels a bus-address range.
    fn own_system(&self, start: Iova, size: u64, owner: Option<TenantId>);
    /// Labels a channel.
    fn own_channel(&self, channel: HostChannel, owner: Option<TenantId>);
    /// Number of engine accesses of `tenant`'s channels to memory of another owner.
    fn foreign_accesses(&self, tenant: TenantId) -> u64;
    /// Busy time of each engine for `tenant`'s channels. Tests compare it with the host's accounts. The
    /// current time slice of a channel that has its engine may be missing.
    fn engine_time(&self, tenant: TenantId) -> Vec<(Engine, Duration)>;
    /// Engine accesses of the host's own channels that met a tenant's memory.
    fn foreign_accesses_of_host(&self) -> u64;
}
