//! The address spaces that a guest's channels use, each shadowed under the number that the aggregator knows
//! it by.
//!
//! A space is known by its page directory. It is created when a channel that uses it starts, and dropped when
//! the last such channel is unbound: before and after that, the guest's tables are not read.

use std::ops::Range;
use std::time::Instant;

use super::host::Host;
use super::placement::Engines;
use super::space_sink::SpaceSink;
use super::status::{Counters, FailSafe};
use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::{RefusalKind, Request, SpaceId};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_ordered::{OrderedMap, OrderedSet};
use gpuvmk_shadow_pagetable::{Budget, Limits, MmuFormat, RunSink, ShadowSpace, SyncError, SyncReport};

/// A page directory as both the instance block and the TLB register name it: the two may differ in whether
/// system memory is snooped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Directory {
    vram: bool,
    address: u64,
}

impl From<PhysicalAddress> for Directory {
    fn from(address: PhysicalAddress) -> Self {
        Self { vram: address.aperture == Aperture::Vram, address: address.address }
    }
}

#[derive(Debug)]
struct Space<F> {
    id: SpaceId,
    directory: PhysicalAddress,
    users: usize,
    shadow: ShadowSpace<F>,
}

/// All shadowed address spaces of a vGPU.
#[derive(Debug)]
pub struct Spaces<F> {
    format: F,
    limits: Limits,
    budget: Budget,
    spaces: OrderedMap<Directory, Space<F>>,
    granted: u16,
}

impl<F: MmuFormat + PartialEq> Spaces<F> {
    /// The guest changed what its tables mean: all of them are read anew.
    pub fn set_format(&mut self, format: F, host: &Host<'_>) -> Result<(), FailSafe> {
        if self.format == format {
            return Ok(());
        }
        self.format = format;
        for space in self.spaces.values_mut() {
            let mut sink = SpaceSink::new(host, space.id);
            let report = space.shadow.clear(&host.memory, &mut self.budget, &mut sink);
            count(host.counters, &report.map_err(fail_safe)?);
            sink.finish()?;
            let fresh = ShadowSpace::new(self.format, space.directory, &mut self.budget)
                .map_err(|refusal| FailSafe::QuotaExceeded(refusal.to_string()))?;
            std::mem::replace(&mut space.shadow, fresh).release(&mut self.budget);
            space.sync(&mut self.budget, host)?;
        }
        Ok(())
    }
}

impl<F: MmuFormat> Spaces<F> {
    /// None yet; at most `granted` at a time.
    pub fn new(format: F, limits: Option<Limits>, granted: u16) -> Self {
        let limits = limits.unwrap_or_else(|| format.limits());
        Self { format, limits, budget: Budget::new(limits), spaces: OrderedMap::new(), granted }
    }

    /// The format of the guest's tables.
    pub fn format(&self) -> F {
        self.format
    }

    /// Number of spaces.
    pub fn len(&self) -> usize {
        self.spaces.len()
    }

    /// The budget of all walks.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Forgets all spaces; the aggregator has dropped them.
    pub fn forget_all(&mut self) {
        self.spaces.clear();
        self.budget = Budget::new(self.limits);
    }

    /// Counts one more user of a space, which is created if need be, and synchronises it. `None` when the
    /// host has no room for one more space.
    pub fn acquire(
        &mut self,
        directory: PhysicalAddress,
        host: &Host<'_>,
    ) -> Result<Option<SpaceId>, FailSafe> {
        let key = directory.into();
        if !self.spaces.contains_key(&key) {
            let Some(id) = self.free_id() else { return Ok(None) };
            match host.request(&Request::CreateSpace(id)) {
                Ok(()) => {}
                Err(LinkError::Refused { kind: RefusalKind::Exhausted | RefusalKind::Quota, .. }) => {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
            let shadow = ShadowSpace::new(self.format, directory, &mut self.budget)
                .map_err(|refusal| FailSafe::QuotaExceeded(refusal.to_string()))?;
            self.spaces.insert(key, Space { id, directory, users: 0, shadow });
        }
        let Some(space) = self.spaces.get_mut(&key) else { return Ok(None) };
        space.users = space.users.saturating_add(1);
        space.sync(&mut self.budget, host)?;
        Ok(Some(space.id))
    }

    /// Counts one user less; drops the space with the last one.
    pub fn release(&mut self, directory: PhysicalAddress, host: &Host<'_>) -> Result<(), FailSafe> {
        let key = directory.into();
        let Some(space) = self.spaces.get_mut(&key) else { return Ok(()) };
        space.users = space.users.saturating_sub(1);
        if space.users > 0 {
            return Ok(());
        }
        if let Some(space) = self.spaces.remove(&key) {
            space.shadow.release(&mut self.budget);
            host.request(&Request::DestroySpace(space.id))?;
        }
        Ok(())
    }

    /// Synchronises the space of a page directory, if it is shadowed.
    pub fn sync(&mut self, directory: PhysicalAddress, host: &Host<'_>) -> Result<(), FailSafe> {
        match self.spaces.get_mut(&directory.into()) {
            Some(space) => space.sync(&mut self.budget, host),
            None => {
                host.counters.flushes_unused.one();
                Ok(())
            }
        }
    }

    /// Unmaps `[start, start + size)` of system memory everywhere.
    pub fn evict(&mut self, start: u64, size: u64, host: &Host<'_>) -> Result<(), FailSafe> {
        for space in self.spaces.values_mut() {
            let mut sink = SpaceSink::new(host, space.id);
            let budget = &mut self.budget;
            let report = space.shadow.evict_system_memory(start, size, &host.memory, budget, &mut sink);
            count(host.counters, &report.map_err(fail_safe)?);
            sink.finish()?;
        }
        Ok(())
    }

    fn free_id(&self) -> Option<SpaceId> {
        let used: OrderedSet<SpaceId> = self.spaces.values().map(|space| space.id).collect();
        (0..self.granted).map(SpaceId).find(|id| !used.contains(id))
    }
}

/// Spaces, and the way to send their mappings.
pub(super) struct Mapped<'a, 'h, F> {
    spaces: &'a Spaces<F>,
    host: &'a Host<'h>,
}

impl<F> Spaces<F> {
    /// The same for page placement.
    pub(super) const fn mapped<'a, 'h>(&'a self, host: &'a Host<'h>) -> Mapped<'a, 'h, F> {
        Mapped { spaces: self, host }
    }
}

impl<F: MmuFormat> Engines for Mapped<'_, '_, F> {
    fn map_again(&self, vram: Range<u64>) -> Result<(), FailSafe> {
        for space in self.spaces.spaces.values() {
            let mut runs = Vec::new();
            space.shadow.visit_vram(vram.start, vram.end - vram.start, &mut |run| runs.push(run));
            if !runs.is_empty() {
                let mut sink = SpaceSink::new(self.host, space.id);
                sink.batch(Vec::new(), runs)?;
                sink.finish()?;
            }
        }
        Ok(())
    }
}

impl<F: MmuFormat> Space<F> {
    fn sync(&mut self, budget: &mut Budget, host: &Host<'_>) -> Result<(), FailSafe> {
        let start = Instant::now();
        let mut sink = SpaceSink::new(host, self.id);
        let report = self.shadow.sync(&host.memory, budget, &mut sink).map_err(|error| {
            if matches!(error, SyncError::Walk(_)) {
                host.meters.too_many_tables();
            }
            fail_safe(error)
        })?;
        sink.finish()?;
        count(host.counters, &report);
        if host.meters.bad_pages(report.withheld) {
            return Err(FailSafe::ForeignMemory(format!("{} pages of one address space", report.withheld)));
        }
        host.counters.walks.one();
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        host.counters.walk_nanos.add(nanos);
        host.counters.walk_times.note(report.mapped.runs > 0, report.unmapped.runs > 0, nanos);
        Ok(())
    }
}

fn fail_safe(error: SyncError<LinkError>) -> FailSafe {
    match error {
        SyncError::Walk(refusal) => FailSafe::QuotaExceeded(refusal.to_string()),
        SyncError::Sink(error) => error.into(),
    }
}

fn count(counters: &Counters, report: &SyncReport) {
    counters.table_pages.add(report.table_pages);
    counters.tables_unreadable.add(report.unreadable);
    counters.runs_mapped.add(report.mapped.runs);
    counters.pages_mapped.add(report.mapped.pages);
    counters.runs_unmapped.add(report.unmapped.runs);
    counters.pages_unmapped.add(report.unmapped.pages);
    counters.pages_withheld.add(report.withheld);
}
