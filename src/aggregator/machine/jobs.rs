//! Requests that are too long for one turn: carried out in pieces between other tenants' work, and answered when
//! done. A guest decides how long its requests are, so no request may hold the thread for longer than a piece.
//!
//! A tenant has one job at most: its connection is not read until the answer is out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Machine, Outcome, Output};
use crate::addr::{GpuVa, TenantId};
use crate::aggregator::check::CheckedUpdate;
use crate::aggregator::dma_map::DmaRange;
use crate::aggregator::limit::Limit;
use crate::aggregator::protocol::{RefusalKind, Reply};
use crate::aggregator::tenant::Refusal;
use crate::gpu::{GpuError, HostMapping, HostRange, HostTarget, SpaceHandle};

/// Page-table entries written in one piece: some 100 microseconds.
const PIECE: u64 = 1 << 16;

/// An unmapping costs this much less per page than a mapping, because most of a large one has no tables.
const UNMAP_SHARE: u64 = 8;

/// What remains of a long request.
#[derive(Debug)]
pub enum Job {
    /// Changes of an address space.
    Update {
        /// Which.
        space: SpaceHandle,
        /// Runs to unmap, first.
        unmap: VecDeque<HostRange>,
        /// Runs to map.
        map: VecDeque<HostMapping>,
        /// The answer for pages that were not allowed.
        verdict: Option<Refusal>,
    },
    /// Memory ranges to take away.
    Release(Vec<DmaRange>),
}

impl Machine {
    /// Carries out a checked update: at once if it is short.
    pub(super) fn start_update(
        &mut self,
        tenant: TenantId,
        space: SpaceHandle,
        update: CheckedUpdate,
        verdict: Option<Refusal>,
    ) -> Result<Outcome, Refusal> {
        let job = Job::Update { space, unmap: update.unmap.into(), map: update.map.into(), verdict };
        self.start_job(tenant, job)
    }

    /// Carries out the first piece of a job.
    pub(super) fn start_job(&mut self, tenant: TenantId, mut job: Job) -> Result<Outcome, Refusal> {
        match self.work_at(tenant, &mut job) {
            Some(Ok(())) => Ok(Outcome::Now(Reply::Done)),
            Some(Err(refusal)) => Err(refusal),
            None => {
                self.tenant(tenant)?.job = Some(job);
                Ok(Outcome::Later)
            }
        }
    }

    /// Ends an update of an address space that is about to go, and answers it.
    pub(super) fn cancel_update(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if tenant.job.take_if(|job| matches!(job, Job::Update { .. })).is_some() {
            let message =
                "the VM went into fail-safe state before its page tables were all written".to_owned();
            self.outputs.push(Output::Reply(id, Reply::Refused { kind: RefusalKind::Protocol, message }));
        }
    }

    /// Carries out the next piece of every job. True when there is more to do.
    pub(super) fn advance_jobs(&mut self, now: Duration) -> bool {
        let busy: Vec<_> = self.tenants.values().filter(|t| t.job.is_some()).map(|t| t.id).collect();
        let mut more = false;
        for tenant in busy {
            if self.held(tenant, now) {
                continue;
            }
            let start = Instant::now();
            let Some(mut job) = self.tenants.get_mut(&tenant).and_then(|t| t.job.take()) else { continue };
            match self.work_at(tenant, &mut job) {
                Some(result) => {
                    let reply = match result {
                        Ok(()) => Reply::Done,
                        Err(refusal) => self.refuse(tenant, refusal, now),
                    };
                    self.outputs.push(Output::Reply(tenant, reply));
                }
                None => {
                    if let Some(owner) = self.tenants.get_mut(&tenant) {
                        owner.job = Some(job);
                    }
                    more = true;
                }
            }
            self.charge(tenant, start.elapsed());
        }
        more
    }

    /// Carries out a piece; the answer once nothing is left.
    fn work_at(&mut self, tenant: TenantId, job: &mut Job) -> Option<Result<(), Refusal>> {
        match job {
            Job::Update { space, unmap, map, verdict } => {
                let (some_unmap, some_map) = next_piece(unmap, map);
                let budget = self.table_budget(tenant, Some(*space));
                if let Err(refusal) = self.check_mappings(tenant, &some_map) {
                    return Some(Err(refusal));
                }
                let start = Instant::now();
                let updated = self.driver.update_space(*space, &some_unmap, &some_map, budget);
                if let Some(owner) = self.tenants.get_mut(&tenant) {
                    owner.updates.note_nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
                }
                match updated {
                    Ok(()) if unmap.is_empty() && map.is_empty() => Some(verdict.take().map_or(Ok(()), Err)),
                    Ok(()) => None,
                    Err(GpuError::Exhausted { what, limit }) => Some(Err(Refusal::met(
                        Limit::PageTables,
                        RefusalKind::Quota,
                        format!("no {what} left for this VM ({limit} in all)"),
                    ))),
                    // Faults, as other pages that cannot be had; what can be mapped is.
                    Err(GpuError::Unmappable(why)) => {
                        verdict.get_or_insert(Refusal::new(RefusalKind::OutsidePartition, why));
                        if unmap.is_empty() && map.is_empty() { verdict.take().map(Err) } else { None }
                    }
                    Err(error) => {
                        self.quarantine(tenant, "writing page tables", &error);
                        Some(Err(error.into()))
                    }
                }
            }
            Job::Release(ranges) => {
                if let Some(range) = ranges.pop()
                    && let Err(refusal) = self.release_range(tenant, range)
                {
                    return Some(Err(refusal));
                }
                ranges.is_empty().then_some(Ok(()))
            }
        }
    }
}

/// Takes runs worth a piece off the front; a run that is longer is cut.
fn next_piece(
    unmap: &mut VecDeque<HostRange>,
    map: &mut VecDeque<HostMapping>,
) -> (Vec<HostRange>, Vec<HostMapping>) {
    let mut left = PIECE;
    let mut some_unmap = Vec::new();
    while left > 0
        && let Some(run) = unmap.front_mut()
    {
        let room = left.saturating_mul(UNMAP_SHARE);
        let pages = u32::try_from(u64::from(run.pages).min(room)).unwrap_or(run.pages);
        some_unmap.push(HostRange { pages, ..*run });
        left = left.saturating_sub((u64::from(pages) / UNMAP_SHARE).max(1));
        run.va = advance(run.va, pages, run.page_shift);
        run.pages = run.pages.saturating_sub(pages);
        if run.pages == 0 {
            unmap.pop_front();
        }
    }
    let mut some_map = Vec::new();
    while left > 0
        && unmap.is_empty()
        && let Some(run) = map.front_mut()
    {
        let pages = u32::try_from(u64::from(run.pages).min(left)).unwrap_or(run.pages);
        some_map.push(HostMapping { pages, ..*run });
        left = left.saturating_sub(u64::from(pages).max(1));
        let bytes = u64::from(pages) << run.page_shift;
        run.va = advance(run.va, pages, run.page_shift);
        run.target = match run.target {
            HostTarget::Vram(at) => HostTarget::Vram(crate::addr::HostVram(at.0.saturating_add(bytes))),
            HostTarget::System { iova, coherent } => {
                HostTarget::System { iova: crate::addr::Iova(iova.0.saturating_add(bytes)), coherent }
            }
        };
        run.pages = run.pages.saturating_sub(pages);
        if run.pages == 0 {
            map.pop_front();
        }
    }
    (some_unmap, some_map)
}

fn advance(va: GpuVa, pages: u32, page_shift: u8) -> GpuVa {
    GpuVa(va.0.saturating_add(u64::from(pages) << page_shift))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::addr::{HostVram, Iova};

    fn mapping(va: u64, pages: u32, page_shift: u8, system: bool) -> HostMapping {
        let at = va ^ 0x40_0000_0000;
        let target = if system {
            HostTarget::System { iova: Iova(at), coherent: true }
        } else {
            HostTarget::Vram(HostVram(at))
        };
        HostMapping { va: GpuVa(va), pages, page_shift, target, read_only: false, kind: 0 }
    }

    /// First page, pages and target of each stretch, with neighbours that continue each other joined.
    fn joined(runs: &[HostMapping]) -> Vec<HostMapping> {
        let mut out: Vec<HostMapping> = Vec::new();
        for run in runs {
            match out.last_mut() {
                Some(last) if advance(last.va, last.pages, last.page_shift) == run.va => {
                    last.pages += run.pages;
                }
                _ => out.push(*run),
            }
        }
        out
    }

    proptest! {
        #[test]
        fn pieces_make_up_the_whole_and_are_bounded(
            unmaps in prop::collection::vec(1_u32..1 << 22, 0..4),
            maps in prop::collection::vec((1_u32..1 << 18, any::<bool>()), 0..5),
        ) {
            let unmaps: Vec<_> = (0_u64..).zip(unmaps)
                .map(|(i, pages)| HostRange { va: GpuVa(i << 36), pages, page_shift: 12 }).collect();
            let maps: Vec<_> = (0_u64..).zip(maps)
                .map(|(i, (pages, system))| mapping(i << 36, pages, 12, system)).collect();
            let (mut unmap, mut map) = (VecDeque::from(unmaps.clone()), VecDeque::from(maps.clone()));

            let (mut unmapped, mut mapped) = (0_u64, Vec::new());
            while !unmap.is_empty() || !map.is_empty() {
                let (u, m) = next_piece(&mut unmap, &mut map);
                prop_assert!(!u.is_empty() || !m.is_empty(), "no progress");
                prop_assert!(m.is_empty() || unmap.is_empty(), "mapped before all was unmapped");
                prop_assert!(m.iter().map(|run| u64::from(run.pages)).sum::<u64>() <= PIECE);
                unmapped += u.iter().map(|run| u64::from(run.pages)).sum::<u64>();
                for run in &m {
                    let (HostTarget::Vram(HostVram(at)) | HostTarget::System { iova: Iova(at), .. }) = run.target;
                    prop_assert_eq!(at, run.va.0 ^ 0x40_0000_0000);
                }
                mapped.extend(m);
            }

            prop_assert_eq!(unmapped, unmaps.iter().map(|run| u64::from(run.pages)).sum::<u64>());
            prop_assert_eq!(joined(&mapped), maps);
        }
    }
}
