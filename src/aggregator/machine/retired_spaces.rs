//! Address spaces that their tenants gave up: each is cleared at once, and destroyed when no channel that
//! hardware may still have uses it any more.

use super::hardware::Hardware;
use super::host_channels::HostChannels;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_gpu::{Budget, GpuError, Progress, SpaceHandle};

/// One of them.
#[derive(Clone, Copy, Debug)]
struct RetiredSpace {
    tenant: TenantId,
    space: SpaceHandle,
    /// Engines reach nothing through it any more.
    cleared: bool,
}

/// Those of all tenants.
#[derive(Debug, Default)]
pub(super) struct RetiredSpaces {
    spaces: Vec<RetiredSpace>,
    /// A channel which hardware did not let go may still use these.
    withheld: Vec<SpaceHandle>,
}

/// What failed, and how.
pub(super) type Failure = (&'static str, GpuError);

impl RetiredSpaces {
    /// A tenant gave an address space up.
    pub fn add(&mut self, tenant: TenantId, space: SpaceHandle) {
        self.spaces.push(RetiredSpace { tenant, space, cleared: false });
    }

    /// An address space is never destroyed: a channel that hardware does not let go may use it.
    pub fn withhold(&mut self, space: SpaceHandle) {
        self.withheld.push(space);
    }

    /// Those of a tenant.
    pub fn of(&self, tenant: TenantId) -> impl Iterator<Item = SpaceHandle> {
        self.spaces.iter().filter(move |retired| retired.tenant == tenant).map(|retired| retired.space)
    }

    /// True if engines may still reach something through it.
    pub fn is_uncleared(&self, space: SpaceHandle) -> bool {
        self.spaces.iter().any(|retired| retired.space == space && !retired.cleared)
    }

    /// Clears and destroys those of a tenant, for as long as the budget lasts. Failed ones go into
    /// `failures`. [`Progress::Done`]: nothing can be done until a channel goes.
    pub fn advance(
        &mut self,
        tenant: TenantId,
        channels: &HostChannels,
        hardware: &mut Hardware,
        budget: &mut Budget,
        failures: &mut Vec<Failure>,
    ) -> Progress {
        let mut index = 0;
        while let Some(retired) = self.spaces.get_mut(index) {
            if retired.tenant != tenant {
                index = index.saturating_add(1);
                continue;
            }
            if budget.is_spent() {
                return Progress::More;
            }
            if !retired.cleared {
                match hardware.driver.advance_clear(retired.space, budget) {
                    Ok(Progress::Done) => {}
                    Ok(unfinished) => return unfinished,
                    Err(error) => failures.push(("clearing page tables", error)),
                }
                retired.cleared = true;
            }
            let space = retired.space;
            if channels.is_used(space) {
                index = index.saturating_add(1);
                continue;
            }
            if self.withheld.contains(&space) {
                log::error!("an address space stays: a channel that hardware does not let go may use it");
            } else {
                match hardware.driver.advance_destroy_space(space, budget) {
                    Ok(Progress::Done) => {}
                    Ok(Progress::More | Progress::Waits) => return Progress::More,
                    Err(error) => failures.push(("destroying an address space", error)),
                }
            }
            self.spaces.remove(index);
        }
        Progress::Done
    }
}
