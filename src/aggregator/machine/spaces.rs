//! Address spaces: shadow trees that hold what a tenant wants mapped, as far as it may be.

use super::{Machine, Outcome};
use crate::addr::TenantId;
use crate::aggregator::check::Checker;
use crate::aggregator::limit::Limit;
use crate::aggregator::protocol::{GuestMapping, GuestRange, RefusalKind, SpaceId};
use crate::aggregator::tenant::{Refusal, Space};
use crate::gpu::{HostMapping, SpaceHandle};

impl Machine {
    pub(super) fn create_space(&mut self, tenant: TenantId, id: SpaceId) -> Result<(), Refusal> {
        let budget = self.table_budget(tenant, None);
        let owner = self.tenant(tenant)?;
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
        let handle = self.driver.create_space()?;
        let used = self.driver.space_usage(handle).map_or(0, |usage| usage.table_bytes);
        if used > budget {
            self.driver.destroy_space(handle)?;
            return Err(Refusal::met(
                Limit::PageTables,
                RefusalKind::Quota,
                format!("an address space takes {used} bytes of page tables; {budget} are left for this VM"),
            ));
        }
        self.tenant(tenant)?.spaces.insert(id, Space { handle });
        Ok(())
    }

    pub(super) fn destroy_space(&mut self, tenant: TenantId, id: SpaceId) -> Result<(), Refusal> {
        let owner = self.tenant(tenant)?;
        let space = owner.space(id)?;
        if let Some((channel, _)) = owner.live_channels().find(|(_, channel)| channel.space == id) {
            return Err(Refusal::new(
                RefusalKind::BadId,
                format!("address space {} is in use by channel {}", id.0, channel.0),
            ));
        }
        owner.spaces.remove(&id);
        self.bury_space(tenant, space.handle);
        Ok(())
    }

    pub(super) fn update_space(
        &mut self,
        tenant: TenantId,
        id: SpaceId,
        unmap: &[GuestRange],
        map: &[GuestMapping],
    ) -> Result<Outcome, Refusal> {
        let owner = self
            .tenants
            .get_mut(&tenant)
            .ok_or_else(|| Refusal::new(RefusalKind::Protocol, "this connection is not admitted"))?;
        let space = owner.space(id)?;
        owner.counters.updates = owner.counters.updates.saturating_add(1);
        let checker = Checker { info: &self.info, partition: &owner.partition, memory: &owner.memory };
        let update = checker
            .update(unmap, map)
            .map_err(|error| Refusal::new(RefusalKind::Protocol, error.to_string()))?;
        owner.counters.bad_pages = owner.counters.bad_pages.saturating_add(update.bad_pages);
        let verdict = update.first_bad.map(|(va, target)| {
            Refusal::new(
                RefusalKind::OutsidePartition,
                format!(
                    "{} pages point outside the VM's VRAM and memory and are left as faults; the first is {va} to {target:?}",
                    update.bad_pages
                ),
            )
        });
        self.start_update(tenant, space.handle, update, verdict)
    }

    /// All shadow trees of a tenant, those included that are only waiting for their channels to go.
    pub(super) fn spaces_of(&self, tenant: TenantId) -> Vec<SpaceHandle> {
        let live = self.tenants.get(&tenant).into_iter().flat_map(|t| t.spaces.values()).map(|s| s.handle);
        let buried = self.zombies.iter().filter(|z| z.tenant == tenant).map(|z| z.space);
        live.chain(buried).collect()
    }

    /// Whether a tenant may have these mappings too. Pages that are mapped anew count twice until they are.
    pub(super) fn check_mappings(&self, tenant: TenantId, map: &[HostMapping]) -> Result<(), Refusal> {
        let most = self.tenants.get(&tenant).map_or(0, |t| t.mapping_quota);
        let new = map.iter().fold(0_u64, |sum, run| sum.saturating_add(run.pages.into()));
        if new == 0 || most == u64::MAX {
            return Ok(());
        }
        let pages = self
            .spaces_of(tenant)
            .into_iter()
            .filter_map(|space| self.driver.space_usage(space).ok())
            .fold(new, |sum, usage| sum.saturating_add(usage.pages));
        if pages <= most {
            return Ok(());
        }
        let message = format!("{pages} pages would be mapped; this VM may have {most}");
        Err(Refusal::met(Limit::Mappings, RefusalKind::Quota, message))
    }

    /// What `space` (or a new one) may take of its tenant's quota of page-table memory.
    pub(super) fn table_budget(&self, tenant: TenantId, space: Option<SpaceHandle>) -> u64 {
        let quota = self.tenants.get(&tenant).map_or(0, |t| t.table_quota);
        let others = self
            .spaces_of(tenant)
            .into_iter()
            .filter(|other| Some(*other) != space)
            .filter_map(|other| self.driver.space_usage(other).ok())
            .fold(0_u64, |sum, usage| sum.saturating_add(usage.table_bytes));
        quota.saturating_sub(others)
    }
}
