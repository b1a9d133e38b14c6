//! The tenants: by number, by name, in turn, and what each has of the one thread.

use std::ops::Bound;
use std::time::Duration;

use crate::claimant::Claimant;
use crate::limit::Limit;
use crate::protocol::{Hello, RefusalKind};
use crate::tenant::{Holder, Refusal, Tenant};
use gpuvmk_chip::addr::TenantId;
use gpuvmk_host::reaper::Account;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::mapping::sigbus;
use gpuvmk_scheduler::share::Rejection;

/// Most tenants at a time.
pub(super) const MAX_TENANTS: usize = 64;

/// Most tenants of one process of the aggregator's own user.
const MAX_OF_ONE_PROCESS: usize = MAX_TENANTS / 4;

// Each file of a tenant takes one of the guarded mappings of this process.
const _: () = assert!(2 * gpuvmk_pci::dma::MAX_FILES * MAX_TENANTS < sigbus::MAX_GUARDED);

/// All tenants, by their number.
#[derive(Debug)]
pub(super) struct Tenants {
    by_id: OrderedMap<TenantId, Tenant>,
    /// The number of the next one.
    next: u32,
    /// The tenant that was worked for last.
    turn: TenantId,
    /// In whose name files and mappings of VMs that have left are closed, by VM name.
    accounts: OrderedMap<String, Account>,
    /// Missing pages of VMs' memory that were noticed so far.
    lost_pages: u64,
}

impl Default for Tenants {
    fn default() -> Self {
        Self {
            by_id: OrderedMap::new(),
            next: 1,
            turn: TenantId(0),
            accounts: OrderedMap::new(),
            lost_pages: sigbus::lost(),
        }
    }
}

impl Tenants {
    pub fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.by_id.get_mut(&id)
    }

    /// The sender of a request.
    ///
    /// # Errors
    /// It is not admitted.
    pub fn sender(&mut self, id: TenantId) -> Result<&mut Tenant, Refusal> {
        self.get_mut(id).ok_or_else(|| Refusal::new(RefusalKind::Protocol, "this connection is not admitted"))
    }

    /// All, by age.
    pub fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.by_id.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Tenant> {
        self.by_id.values_mut()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The number of the next tenant.
    pub const fn next_id(&mut self) -> TenantId {
        let id = TenantId(self.next);
        let next = self.next.wrapping_add(1);
        self.next = if next == 0 { 1 } else { next };
        id
    }

    pub fn insert(&mut self, tenant: Tenant) {
        self.by_id.insert(tenant.id, tenant);
    }

    /// Removes a tenant. Files that it has not closed yet stay on the account of its name.
    pub fn remove(&mut self, id: TenantId) -> Option<Tenant> {
        let tenant = self.by_id.remove(&id)?;
        if tenant.account.backlog() > 0 {
            self.accounts.insert(tenant.name.clone(), tenant.account.clone());
        }
        Some(tenant)
    }

    /// The VM of this name.
    ///
    /// # Errors
    /// None is; the text has those that are there.
    pub fn named(&self, name: &str) -> Result<TenantId, Rejection> {
        let id = self.iter().find(|tenant| tenant.name == name).map(|tenant| tenant.id);
        id.ok_or_else(|| {
            let names: Vec<_> = self.iter().map(|tenant| tenant.name.as_str()).collect();
            let present = if names.is_empty() { "none is".to_owned() } else { names.join(", ") };
            Rejection(format!("No VM named {name} is connected; {present}"))
        })
    }

    /// In whose name a tenant's files and mappings are closed.
    pub fn account(&self, id: TenantId) -> Account {
        self.get(id).map(|tenant| tenant.account.clone()).unwrap_or_default()
    }

    /// The account of a VM that comes: that of its name, as long as there is something left in it.
    pub fn account_of(&mut self, name: &str) -> Account {
        self.accounts.retain(|_, account| account.backlog() > 0);
        self.accounts.get(name).cloned().unwrap_or_default()
    }

    /// Whether there is a place for one more tenant of a claimant.
    ///
    /// # Errors
    /// The holder, the name or the process has what it may have.
    pub fn check_place(&self, hello: &Hello, holder: &Holder, claimant: &Claimant) -> Result<(), Refusal> {
        if let Some(present) = self.iter().find(|tenant| tenant.holder == *holder) {
            let message = match holder {
                Holder::User(uid) => format!(
                    "user {uid} has a VM at this GPU already, {}: without [[vm]] sections in the GPU's file a user has one",
                    present.name
                ),
                Holder::Listed(_) | Holder::Own(_) => {
                    format!("a VM named {} is connected already", present.name)
                }
            };
            return Err(Refusal::new(RefusalKind::Name, message));
        }
        if self.iter().any(|tenant| tenant.name == hello.name) {
            let message = format!("a VM named {} is connected already", hello.name);
            return Err(Refusal::new(RefusalKind::Name, message));
        }
        let of_one = self.iter().filter(|tenant| tenant.pid == claimant.pid).count();
        if !claimant.inside && of_one >= MAX_OF_ONE_PROCESS {
            let message =
                format!("process {} has {of_one} VMs here already, as many as one may", claimant.pid);
            return Err(Refusal::new(RefusalKind::Quota, message));
        }
        Ok(())
    }

    /// All, the one first whose turn it is: the next after the one that was worked for last.
    pub fn in_turn(&self) -> Vec<TenantId> {
        let behind = self.by_id.range((Bound::Excluded(self.turn), Bound::Unbounded));
        behind.chain(self.by_id.range(..=self.turn)).map(|(id, _)| *id).collect()
    }

    /// A tenant is worked for.
    pub const fn set_turn(&mut self, id: TenantId) {
        self.turn = id;
    }

    /// Tenants that are served, in whose memory engines met a page that could not be had since the last call.
    pub fn with_lost_memory(&mut self) -> Vec<TenantId> {
        let lost = sigbus::lost();
        if lost == self.lost_pages {
            return Vec::new();
        }
        self.lost_pages = lost;
        let met = |tenant: &&Tenant| tenant.fail_safe.is_none() && tenant.owner.lost_pages() > 0;
        self.iter().filter(met).map(|tenant| tenant.id).collect()
    }

    /// A tenant wants the thread: `None` when it may have it now, else when it may ask again.
    pub fn thread_wait(&mut self, id: TenantId, now: Duration) -> Option<Duration> {
        let others = self.who_wants(Some(id), now).count();
        let tenant = self.get_mut(id)?;
        let until = tenant.thread.wait(others, now)?;
        tenant.limits.met(Limit::ThreadTime);
        Some(until)
    }

    /// Tenants other than `id` that want the thread.
    fn who_wants(&self, id: Option<TenantId>, now: Duration) -> impl Iterator<Item = &Tenant> {
        self.iter().filter(move |tenant| Some(tenant.id) != id && tenant.thread.is_wanted(now))
    }

    /// True if a tenant other than `id` wants the thread.
    pub fn others_want(&self, id: Option<TenantId>, now: Duration) -> bool {
        self.who_wants(id, now).next().is_some()
    }

    /// A tenant took this much of the thread's time.
    pub fn charge(&mut self, id: TenantId, time: Duration) {
        if let Some(tenant) = self.get_mut(id) {
            tenant.thread.spend(time);
        }
    }
}
