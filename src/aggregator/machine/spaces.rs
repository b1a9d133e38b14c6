//! Address spaces: shadow trees that hold the allowed part of a tenant's mappings.

use std::collections::VecDeque;
use std::time::Duration;

use super::output::Outcome;
use super::state::Machine;
use crate::check::Checker;
use crate::limit::Limit;
use crate::protocol::{GuestMapping, GuestRange, RefusalKind, SpaceId};
use crate::tenant::{Job, Refusal, Space, Update};
use gpuvmk_chip::addr::TenantId;
use gpuvmk_gpu::{GpuDriverExt as _, HostRange, SpaceHandle, SpaceUpdate};

impl Machine {
    pub(super) fn create_space(&mut self, tenant: TenantId, id: SpaceId) -> Result<(), Refusal> {
        let budget = self.table_budget(tenant);
        let owner = self.tenants.sender(tenant)?;
        if id.0 >= owner.space_limit {
            let limit = owner.space_limit;
            return Err(Refusal::met(
                Limit::Spaces,
                RefusalKind::BadId,
                format!("address space {} is not below {limit}", id.0),
            ));
        }
        if owner.spaces.contains_key(&id) {
            return Err(Refusal::new(RefusalKind::BadId, format!("address space {} exists already", id.0)));
        }
        // A retired space counts until it is gone, so that all VMs' quotas together fit the physical GPU.
        let going = self.retired_spaces.of(tenant).count();
        let owner = self.tenants.sender(tenant)?;
        if owner.spaces.len().saturating_add(going) >= usize::from(owner.space_limit) {
            let limit = owner.space_limit;
            return Err(Refusal::met(
                Limit::Spaces,
                RefusalKind::Exhausted,
                format!("all {limit} address spaces of this VM are in use ({going} are being taken back)"),
            ));
        }
        let handle = self.hardware.driver.create_space()?;
        let used = self.hardware.driver.space_usage(handle).map_or(0, |usage| usage.table_bytes);
        if used > budget {
            self.hardware.driver.destroy_space(handle)?;
            return Err(Refusal::met(
                Limit::PageTables,
                RefusalKind::Quota,
                format!("an address space takes {used} bytes of page tables; {budget} are left for this VM"),
            ));
        }
        self.tenants.sender(tenant)?.spaces.insert(id, Space { handle });
        Ok(())
    }

    pub(super) fn destroy_space(
        &mut self,
        tenant: TenantId,
        id: SpaceId,
        now: Duration,
    ) -> Result<Outcome, Refusal> {
        let owner = self.tenants.sender(tenant)?;
        let space = owner.space(id)?;
        if let Some((channel, _)) = owner.live_channels().find(|(_, channel)| channel.space == id) {
            return Err(Refusal::new(
                RefusalKind::BadId,
                format!("address space {} is in use by channel {}", id.0, channel.0),
            ));
        }
        owner.spaces.remove(&id);
        self.retired_spaces.add(tenant, space.handle);
        self.start_job(tenant, Job::Destroy(space.handle), now)
    }

    pub(super) fn update_space(
        &mut self,
        tenant: TenantId,
        id: SpaceId,
        unmap: &[GuestRange],
        map: Vec<GuestMapping>,
        now: Duration,
    ) -> Result<Outcome, Refusal> {
        let owner = self.tenants.sender(tenant)?;
        let space = owner.space(id)?.handle;
        owner.counters.updates = owner.counters.updates.saturating_add(1);
        let checker =
            Checker { info: &self.hardware.info, partition: &owner.partition, memory: &owner.memory };
        checker
            .check_shapes(unmap, &map)
            .map_err(|error| Refusal::new(RefusalKind::Protocol, error.to_string()))?;
        let (table_budget, other_pages) = self.room_for(tenant, space);
        let unmap =
            unmap.iter().map(|run| HostRange { va: run.va, pages: run.pages, page_shift: run.page_shift });
        let update = Update {
            space,
            ready: SpaceUpdate { unmap: unmap.collect(), map: VecDeque::new() },
            map: map.into(),
            table_budget,
            other_pages,
            bad_pages: 0,
            first_bad: None,
            unmappable: None,
            nanos: 0,
        };
        self.start_job(tenant, Job::Update(Box::new(update)), now)
    }

    /// All shadow trees of a tenant, those included that are only waiting for their channels to go.
    pub(super) fn spaces_of(&self, tenant: TenantId) -> Vec<SpaceHandle> {
        let live = self.tenants.get(tenant).into_iter().flat_map(|t| t.spaces.values()).map(|s| s.handle);
        live.chain(self.retired_spaces.of(tenant)).collect()
    }

    /// The rest of its tenant's quota of page-table memory that `space` may take, in bytes, and the number of
    /// pages of the tenant's other spaces.
    fn room_for(&self, tenant: TenantId, space: SpaceHandle) -> (u64, u64) {
        let quota = self.tenants.get(tenant).map_or(0, |t| t.table_quota);
        let others = self.spaces_of(tenant).into_iter().filter(|other| *other != space);
        let used = self.hardware.usage(others);
        (quota.saturating_sub(used.table_bytes), used.pages)
    }

    /// The rest of its tenant's quota of page-table memory that a new space may take, in bytes.
    pub(super) fn table_budget(&self, tenant: TenantId) -> u64 {
        let quota = self.tenants.get(tenant).map_or(0, |t| t.table_quota);
        quota.saturating_sub(self.hardware.usage(self.spaces_of(tenant)).table_bytes)
    }
}
