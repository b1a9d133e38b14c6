//! Address spaces as the driver keeps them, where the MMU finds them: the executor's page tables.
//!
//! What an instance block names as its page directory is the number of a space here. A space that is not
//! there any more translates nothing. Changes show to engines when they flush, as with tables in memory.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::mmu::tlb::Page;
use crate::mmu::walker::Walker;
use crate::vram::memory::Memory;
use gpuvmk_chip::addr::{GpuVa, HostVram, Iova, PAGE_SHIFT};
use gpuvmk_chip::gf100::mmu::VA_BITS;
use gpuvmk_chip::{Aperture, FaultReason, PhysicalAddress};
use gpuvmk_gpu::space_map::{Run, SpaceMap, SpaceShape};
use gpuvmk_gpu::{Budget, GpuError, HostTarget, Progress, Revocation, SpaceHandle, SpaceUpdate, SpaceUsage};

/// Largest number of spaces at a time. There are fewer channels.
pub(super) const MAX_SPACES: usize = 1024;

/// Numbers of spaces are below this: a page number in an instance block.
const MAX_NUMBER: u32 = 1 << (VA_BITS - PAGE_SHIFT);

/// Storage kind that names no layout (NV_MMU_PTE_KIND_INVALID).
const KIND_INVALID: u8 = 0x07;

/// Number of runs that are handled between two looks at the budget.
const SOME: usize = 32;

/// log2 of the range that a page table covers, to tell absent tables from absent pages.
const TABLE_SHIFT: u8 = 21;

/// One space, with what its tenant may spend on it.
#[derive(Debug)]
struct Space {
    map: SpaceMap,
    budget: u64,
}

/// All spaces. Lock order: the table, then a space; neither is held while the TLB is flushed.
#[derive(Debug)]
pub(super) struct Spaces {
    shape: SpaceShape,
    table: RwLock<HashMap<SpaceHandle, Arc<RwLock<Space>>>>,
}

/// The page directory address that names a space in instance blocks and TLB flushes.
pub(super) fn directory(space: SpaceHandle) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address: u64::from(space.0) << 12 }
}

fn no_such(space: SpaceHandle) -> GpuError {
    GpuError::NoSuch { what: "address space", id: space.0.into() }
}

impl Spaces {
    pub(super) fn new(shape: SpaceShape) -> Self {
        Self { shape, table: RwLock::default() }
    }

    fn find(&self, space: SpaceHandle) -> Option<Arc<RwLock<Space>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(&space).map(Arc::clone)
    }

    /// Calls `with` with a space that exists.
    fn with<T>(&self, handle: SpaceHandle, with: impl FnOnce(&mut Space) -> T) -> Result<T, GpuError> {
        let space = self.find(handle).ok_or_else(|| no_such(handle))?;
        let mut space = space.write().unwrap_or_else(PoisonError::into_inner);
        Ok(with(&mut space))
    }

    /// A new, empty space. `last` is the one before.
    pub(super) fn create(&self, last: SpaceHandle) -> Result<SpaceHandle, GpuError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= MAX_SPACES {
            return Err(GpuError::Exhausted { what: "address spaces", limit: MAX_SPACES as u64 });
        }
        let mut handle = last;
        // This ends, since there are more numbers than spaces.
        loop {
            // 0 is left out: an instance block that was never written names no space.
            handle = SpaceHandle(handle.0.saturating_add(1) % MAX_NUMBER);
            if handle.0 != 0 && !table.contains_key(&handle) {
                break;
            }
        }
        let space = Space { map: SpaceMap::new(self.shape), budget: 0 };
        table.insert(handle, Arc::new(RwLock::new(space)));
        Ok(handle)
    }

    pub(super) fn destroy(&self, handle: SpaceHandle) -> Result<(), GpuError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&handle).map(drop).ok_or_else(|| no_such(handle))
    }

    pub(super) fn check(&self, handle: SpaceHandle) -> Result<(), GpuError> {
        self.find(handle).map(drop).ok_or_else(|| no_such(handle))
    }

    /// Unmaps, then maps, for as long as the budget lasts. What was done before an error stays done.
    pub(super) fn advance_update(
        &self,
        handle: SpaceHandle,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.with(handle, |space| {
            space.budget = table_budget;
            while let Some(range) = update.unmap.front() {
                let gone = space.map.unmap_some(range, table_budget, SOME);
                if gone.as_ref().map_or(true, |gone| gone.len() < SOME) {
                    update.unmap.pop_front();
                }
                if budget.spend(units(gone?.len())) && !update.is_empty() {
                    return Ok(Progress::More);
                }
            }
            while let Some(mapping) = update.map.front() {
                let front = space.map.front(mapping, SOME);
                update.mapped(u64::from(front.pages) << front.page_shift);
                let replaced = space.map.insert(&front, table_budget)?;
                if budget.spend(units(replaced.len())) && !update.is_empty() {
                    return Ok(Progress::More);
                }
            }
            Ok(Progress::Done)
        })?
    }

    pub(super) fn usage(&self, handle: SpaceHandle) -> Result<SpaceUsage, GpuError> {
        self.with(handle, |space| space.map.usage())
    }

    pub(super) fn advance_clear(
        &self,
        handle: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.with(handle, |space| {
            loop {
                let gone = space.map.clear_some(SOME).len();
                if gone < SOME {
                    return Progress::Done;
                }
                if budget.spend(units(gone)) {
                    return Progress::More;
                }
            }
        })
    }

    /// Unmaps what points at this system memory, for as long as the budget lasts.
    pub(super) fn advance_revoke(
        &self,
        handle: SpaceHandle,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.with(handle, |space| {
            let mut gone = Vec::new();
            loop {
                gone.clear();
                if space.map.revoke_some(revocation, space.budget, SOME, &mut gone) {
                    budget.spend(units(gone.len()));
                    return Progress::Done;
                }
                if budget.spend(units(SOME)) {
                    return Progress::More;
                }
            }
        })
    }
}

/// Work at one run, and at those that went for it.
fn units(runs: usize) -> u32 {
    u32::try_from(runs).unwrap_or(u32::MAX).saturating_add(1)
}

impl Walker for Spaces {
    fn walk(&self, _memory: &Memory, directory: PhysicalAddress, va: u64) -> Result<Page, FaultReason> {
        let handle = u32::try_from(directory.address >> 12).map(SpaceHandle);
        let space = handle.ok().and_then(|handle| self.find(handle)).ok_or(FaultReason::NoChannel)?;
        let space = space.read().unwrap_or_else(PoisonError::into_inner);
        match space.map.find(va) {
            Some(run) => Ok(page(run, va)),
            None => {
                let start = va >> TABLE_SHIFT << TABLE_SHIFT;
                let table = space.map.overlapping(start, start.saturating_add(1 << TABLE_SHIFT)).next();
                let absent = FaultReason::PageTableNotPresent;
                Err(table.map_or(absent, |_| FaultReason::PageNotPresent))
            }
        }
    }

    fn invalid_kind(&self) -> u8 {
        KIND_INVALID
    }
}

/// The page of a run that `va` lies in. Runs are made of whole pages.
fn page(run: &Run, va: u64) -> Page {
    let first = GpuVa(va >> run.page_shift << run.page_shift);
    let target = match run.target_at(first.0) {
        HostTarget::Vram(HostVram(address)) => PhysicalAddress { aperture: Aperture::Vram, address },
        HostTarget::System { iova: Iova(address), coherent: true } => {
            PhysicalAddress { aperture: Aperture::SystemCoherent, address }
        }
        HostTarget::System { iova: Iova(address), coherent: false } => {
            PhysicalAddress { aperture: Aperture::SystemNonCoherent, address }
        }
    };
    let Run { page_shift: shift, read_only, kind, .. } = *run;
    Page { va: first.0, shift, target, read_only, privileged: false, kind }
}
