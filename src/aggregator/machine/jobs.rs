//! Requests that are too long for one turn: carried out by the clock between other tenants' work, and
//! answered when done. A guest decides how long its requests are, so no request may hold the thread for
//! longer than a slice.
//!
//! A tenant has one job at most: its connection is not read until the answer is out. So what a job was
//! checked against stays as it is meanwhile.

use std::time::Duration;

use super::output::Outcome;
use super::state::Machine;
use crate::check::Checker;
use crate::limit::Limit;
use crate::protocol::{RefusalKind, Reply};
use crate::tenant::{Job, Refusal, TenantState, Update};
use gpuvmk_chip::addr::TenantId;
use gpuvmk_gpu::{Budget, GpuError, Progress};

/// Runs that are checked before the driver gets them.
const RUNS: usize = 16;

/// Pages of them: what a page that is mapped anew may count twice for.
const PAGES: u32 = 1 << 16;

impl Machine {
    /// Carries out the first slice of a job.
    pub(super) fn start_job(
        &mut self,
        tenant: TenantId,
        mut job: Job,
        now: Duration,
    ) -> Result<Outcome, Refusal> {
        let mut budget = self.slice(Some(tenant), now);
        match self.work_at(tenant, &mut job, &mut budget) {
            Some(Ok(())) => Ok(Outcome::Now(Reply::Done)),
            Some(Err(refusal)) => Err(refusal),
            None => {
                self.tenants.sender(tenant)?.job = Some(job);
                Ok(Outcome::Later)
            }
        }
    }

    /// Ends a request that works on address spaces and channels that are about to go, and answers it.
    pub(super) fn cancel_request(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if tenant.job.take_if(|job| matches!(job, Job::Update(_) | Job::Channel(_))).is_some() {
            let message = "the VM went into fail-safe state before its request was carried out".to_owned();
            self.outbox.reply(id, Reply::Refused { kind: RefusalKind::Protocol, message });
        }
    }

    /// Carries out the next slice of a tenant's job. True when there is more to do at once.
    pub(super) fn advance_job(&mut self, tenant: TenantId, now: Duration, budget: &mut Budget) -> bool {
        let Some(mut job) = self.tenants.get_mut(tenant).and_then(|t| t.job.take()) else { return false };
        match self.work_at(tenant, &mut job, budget) {
            Some(result) => {
                // A tenant that left does not wait for the answer; its failed resources are in quarantine.
                if self.tenants.get(tenant).is_some_and(|t| t.state == TenantState::Active) {
                    let reply = match result {
                        Ok(()) => Reply::Done,
                        Err(refusal) => self.refuse(tenant, refusal, now),
                    };
                    self.outbox.reply(tenant, reply);
                }
                true
            }
            None => {
                if let Some(owner) = self.tenants.get_mut(tenant) {
                    owner.job = Some(job);
                }
                budget.is_spent()
            }
        }
    }

    /// Carries out a slice. Returns the answer once nothing is left. Without an answer and with budget left,
    /// another thread is at work.
    fn work_at(
        &mut self,
        tenant: TenantId,
        job: &mut Job,
        budget: &mut Budget,
    ) -> Option<Result<(), Refusal>> {
        match job {
            Job::Update(update) => loop {
                match self.update_some(tenant, update, budget) {
                    Ok(Progress::Done) => return Some(update.verdict()),
                    Ok(Progress::Waits) => {
                        self.clocks.poll_again();
                        return None;
                    }
                    Ok(Progress::More) if budget.is_spent() => return None,
                    Ok(Progress::More) => {}
                    Err(refusal) => return Some(Err(refusal)),
                }
            },
            Job::Release(withdrawal) => match self.withdraw_some(tenant, withdrawal, budget) {
                Ok(Progress::Done) => Some(Ok(())),
                Ok(Progress::More) => None,
                Ok(Progress::Waits) => {
                    self.clocks.poll_again();
                    None
                }
                Err(refusal) => Some(Err(refusal)),
            },
            Job::Channel(shape) => match self.create_channel(tenant, shape) {
                Ok(Progress::Done) => Some(Ok(())),
                Ok(Progress::More | Progress::Waits) => {
                    self.clocks.poll_again();
                    None
                }
                Err(refusal) => Some(Err(refusal)),
            },
            Job::Destroy(space) => {
                self.advance_retired_spaces(tenant, budget);
                (!self.retired_spaces.is_uncleared(*space)).then_some(Ok(()))
            }
        }
    }

    /// Hands the driver what was checked, or checks more.
    fn update_some(
        &mut self,
        tenant: TenantId,
        update: &mut Update,
        budget: &mut Budget,
    ) -> Result<Progress, Refusal> {
        if update.ready.is_empty() {
            if update.map.is_empty() {
                return Ok(Progress::Done);
            }
            self.check_some(tenant, update)?;
            budget.spend(u32::try_from(RUNS).unwrap_or(0));
        }
        let start = self.clocks.nanos();
        let updated =
            self.hardware.driver.advance_update(update.space, &mut update.ready, update.table_budget, budget);
        update.nanos = update.nanos.saturating_add(self.clocks.nanos().saturating_sub(start));
        let progress = match updated {
            Ok(Progress::Waits) => return Ok(Progress::Waits),
            Ok(_) => Progress::More,
            Err(GpuError::Exhausted { what, limit }) => {
                return Err(Refusal::met(
                    Limit::PageTables,
                    RefusalKind::Quota,
                    format!("no {what} left for this VM ({limit} in all)"),
                ));
            }
            // Faults, as other pages that cannot be had; what can be mapped is.
            Err(GpuError::Unmappable(why)) => {
                if let Some(owner) = self.tenants.get_mut(tenant) {
                    owner.counters.unmappable = owner.counters.unmappable.saturating_add(1);
                }
                update.unmappable.get_or_insert(why);
                Progress::More
            }
            Err(error) => {
                self.quarantine(tenant, "writing page tables", &error);
                return Err(error.into());
            }
        };
        if !(update.ready.is_empty() && update.map.is_empty()) {
            return Ok(progress);
        }
        if let Some(owner) = self.tenants.get_mut(tenant) {
            owner.updates.note_nanos(update.nanos);
        }
        Ok(Progress::Done)
    }

    /// Checks and translates the next runs.
    fn check_some(&mut self, tenant: TenantId, update: &mut Update) -> Result<(), Refusal> {
        let Some(owner) = self.tenants.get_mut(tenant) else { return Ok(()) };
        let checker =
            Checker { info: &self.hardware.info, partition: &owner.partition, memory: &owner.memory };
        let checked = checker.some(&mut update.map, RUNS, PAGES);
        owner.counters.bad_pages = owner.counters.bad_pages.saturating_add(checked.bad_pages);
        update.bad_pages = update.bad_pages.saturating_add(checked.bad_pages);
        update.first_bad = update.first_bad.or(checked.first_bad);
        let most = owner.mapping_quota;
        let new = checked.map.iter().fold(0_u64, |sum, run| sum.saturating_add(run.pages.into()));
        update.ready.unmap.extend(checked.unmap);
        update.ready.map.extend(checked.map);
        if new == 0 || most == u64::MAX {
            return Ok(());
        }
        let here = self.hardware.driver.space_usage(update.space).map_or(0, |usage| usage.pages);
        let pages = update.other_pages.saturating_add(here).saturating_add(new);
        if pages <= most {
            return Ok(());
        }
        let message = format!("{pages} pages would be mapped; this VM may have {most}");
        Err(Refusal::met(Limit::Mappings, RefusalKind::Quota, message))
    }
}
