//! A host address space: one shadow page-table tree in Fermi's format.

use super::bus::Bus;
use super::memory::HostMemory;
use super::tables::Table;
use crate::budget::CALL;
use crate::{
    Budget, GpuError, HostMapping, HostRange, HostTarget, Progress, Revocation, SpaceUpdate, SpaceUsage,
};
use gpuvmk_chip::addr::{GpuVa, HostVram, Iova, PAGE_SHIFT};
use gpuvmk_chip::gf100::mmu::{LargePages, Pde, Pte, SMALL_PAGE_SHIFT, VA_MAX};
use gpuvmk_chip::gf100::ramin::target;
use gpuvmk_chip::gf100::regs::pfb::{
    NV_PFB_PRI_MMU_CTRL, NV_PFB_PRI_MMU_INVALIDATE, NV_PFB_PRI_MMU_INVALIDATE_PDB as PDB,
};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_ordered::OrderedMap;

/// The MMU's large pages, as this driver sets them up.
pub(super) const LARGE: LargePages = LargePages::K128;

/// Page sizes that mappings may have. Pages of 64 KiB, which guests may choose as their large ones, are
/// mapped as small ones.
pub(super) const PAGE_SHIFTS: [u8; 3] = [SMALL_PAGE_SHIFT, 16, 17];

/// NV_PFB_PRI_MMU_INVALIDATE: start, all pages of the directory.
const INVALIDATE_ALL: u32 =
    NV_PFB_PRI_MMU_INVALIDATE::TRIGGER.mask() | NV_PFB_PRI_MMU_INVALIDATE::ALL_VA.mask();
/// The same for the hub's translations (the BARs).
pub(super) const INVALIDATE_HUB: u32 = NV_PFB_PRI_MMU_INVALIDATE::TRIGGER.mask()
    | NV_PFB_PRI_MMU_INVALIDATE::HUBTLB_ONLY.mask()
    | NV_PFB_PRI_MMU_INVALIDATE::ALL_VA.mask();
/// NV_PFB_PRI_MMU_CTRL: room in the queue of invalidations.
const QUEUE_SPACE: u32 = NV_PFB_PRI_MMU_CTRL::INVALIDATE_FREE.mask();
/// NV_PFB_PRI_MMU_CTRL: the queue of invalidations is empty.
const QUEUE_EMPTY: u32 = NV_PFB_PRI_MMU_CTRL::INVALIDATE_EMPTY.mask();

/// Pages that are mapped between two looks at the budget.
const SOME_PAGES: u32 = 512;

/// Entries that are cleared between two looks.
const SOME_ENTRIES: u64 = 1024;

/// An unmapping costs this much less per page than a mapping, because most of a large one has no tables.
const UNMAP_SHARE: u32 = 8;

/// Work at a run: its table entries are written many at a time.
fn units(pages: u32) -> u32 {
    (pages / 64).saturating_add(1)
}

/// The tables of one directory entry.
#[derive(Default)]
struct Tables {
    small: Option<Table>,
    large: Option<Table>,
}

/// The page tables of one address space.
pub(super) struct Space {
    directory: Table,
    tables: OrderedMap<u64, Tables>,
    table_bytes: u64,
}

impl Space {
    pub(super) fn new(memory: &mut HostMemory) -> Result<Self, GpuError> {
        let directory = Table::new(memory, LARGE.directory_entries())?;
        let table_bytes = directory.bytes();
        Ok(Self { directory, tables: OrderedMap::new(), table_bytes })
    }

    /// Where hardware finds the page directory.
    pub(super) fn directory(&self) -> PhysicalAddress {
        self.directory.physical()
    }

    pub(super) fn usage(&self) -> SpaceUsage {
        let valid = |table: &Option<Table>| table.as_ref().map_or(0, Table::valid);
        let pages = self.tables.values().map(|t| valid(&t.small).saturating_add(valid(&t.large))).sum();
        SpaceUsage { table_bytes: self.table_bytes, pages }
    }

    /// Unmaps, then maps, for as long as the budget lasts. `resolve` says where a mapping points for engines,
    /// and nothing while that is not yet so. Engines may use old translations until the next flush.
    pub(super) fn advance_update(
        &mut self,
        memory: &mut HostMemory,
        update: &mut SpaceUpdate,
        mut resolve: impl FnMut(&HostMapping) -> Result<Option<HostMapping>, GpuError>,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        while let Some(range) = update.unmap.front_mut() {
            let pages = range.pages.min(SOME_PAGES.saturating_mul(UNMAP_SHARE));
            let run = Run::new(range.va.0, pages, range.page_shift);
            range.pages = range.pages.saturating_sub(pages);
            range.va = GpuVa(range.va.0.saturating_add(u64::from(pages) << range.page_shift));
            if range.pages == 0 {
                update.unmap.pop_front();
            }
            self.for_pieces(run?, |tables, piece| match tables.of(piece.shift) {
                Some(table) => table.set_run(memory, piece.index, piece.count, |_| 0),
                None => Ok(()),
            })?;
            if budget.spend(units(pages / UNMAP_SHARE)) && !update.is_empty() {
                return Ok(Progress::More);
            }
        }
        while let Some(mapping) = update.map.front() {
            // Pages of 64 KiB are 16 entries each.
            let entries = if mapping.page_shift == 16 { 16 } else { 1 };
            let some = HostMapping { pages: mapping.pages.min(SOME_PAGES / entries), ..*mapping };
            let bytes = u64::from(some.pages) << some.page_shift;
            match resolve(&some) {
                Ok(None) => return Ok(Progress::Waits),
                Ok(Some(resolved)) => {
                    update.mapped(bytes);
                    self.map(memory, &resolved, table_budget)?;
                }
                Err(error) => {
                    update.mapped(bytes);
                    // Whatever was mapped there is not what the guest wants: it goes.
                    let HostMapping { va, pages, page_shift, .. } = some;
                    update.unmap.push_back(HostRange { va, pages, page_shift });
                    return Err(error);
                }
            }
            if budget.spend(units(some.pages.saturating_mul(entries))) && !update.is_empty() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    fn map(
        &mut self,
        memory: &mut HostMemory,
        mapping: &HostMapping,
        table_budget: u64,
    ) -> Result<(), GpuError> {
        let run = Run::new(mapping.va.0, mapping.pages, mapping.page_shift)?;
        let target = match mapping.target {
            HostTarget::Vram(HostVram(address)) => PhysicalAddress { aperture: Aperture::Vram, address },
            HostTarget::System { iova: Iova(address), coherent: true } => {
                PhysicalAddress { aperture: Aperture::SystemCoherent, address }
            }
            HostTarget::System { iova: Iova(address), coherent: false } => {
                PhysicalAddress { aperture: Aperture::SystemNonCoherent, address }
            }
        };
        let bytes = run.bytes();
        let reachable = target.address.checked_add(bytes).is_some_and(|end| end <= VA_MAX);
        if !reachable || !target.address.is_multiple_of(1 << run.shift) {
            return Err(GpuError::Invalid(format!("{bytes:#x} bytes cannot be mapped to {target:?}")));
        }
        for piece in run.pieces() {
            self.ensure_table(memory, &piece, table_budget)?;
            let Some(table) = self.tables.get_mut(&piece.entry).and_then(|t| t.of(piece.shift)) else {
                continue;
            };
            let first = target.address.saturating_add(piece.offset);
            table.set_run(memory, piece.index, piece.count, |index| {
                let address = first.saturating_add(index << piece.shift);
                let target = PhysicalAddress { aperture: target.aperture, address };
                Pte { target, read_only: mapping.read_only, privileged: false, kind: mapping.kind }.encode()
            })?;
        }
        Ok(())
    }

    /// Makes sure that the table for `piece` exists and that the directory names it.
    fn ensure_table(
        &mut self,
        memory: &mut HostMemory,
        piece: &Piece,
        table_budget: u64,
    ) -> Result<(), GpuError> {
        let tables = self.tables.entry(piece.entry).or_default();
        let place = tables.place(piece.shift);
        if place.is_some() {
            return Ok(());
        }
        let entries = LARGE.table_entries(piece.shift);
        let bytes = entries.saturating_mul(8);
        if self.table_bytes.saturating_add(bytes) > table_budget {
            return Err(GpuError::Exhausted {
                what: "page-table memory for this tenant",
                limit: table_budget,
            });
        }
        *place = Some(Table::new(memory, entries)?);
        self.table_bytes = self.table_bytes.saturating_add(bytes);
        let raw = tables.entry().encode();
        self.directory.set_run(memory, piece.entry, 1, |_| raw)
    }

    /// Turns pages into faults for as long as the budget lasts.
    pub(super) fn advance_clear(
        &mut self,
        memory: &HostMemory,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        for tables in self.tables.values_mut() {
            for table in [tables.small.as_mut(), tables.large.as_mut()].into_iter().flatten() {
                while table.valid() > 0 {
                    table.clear_some(memory, SOME_ENTRIES)?;
                    if budget.spend(CALL) {
                        return Ok(Progress::More);
                    }
                }
            }
        }
        Ok(Progress::Done)
    }

    /// Turns the pages that point at this system memory into faults, for as long as the budget lasts.
    pub(super) fn advance_revoke(
        &mut self,
        memory: &HostMemory,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let Iova(first) = revocation.iova;
        let end = first.saturating_add(revocation.size);
        let points_there = |raw: u64, shift: u8| {
            Pte::decode(raw).is_ok_and(|pte| {
                let start = pte.target.address;
                pte.target.aperture != Aperture::Vram
                    && start < end
                    && start.saturating_add(1 << shift) > first
            })
        };
        let (skipped, from, mut at) = revocation.cursor.unwrap_or((0, 0, 0));
        for (entry, tables) in self.tables.range_mut(from..) {
            let both = [
                (0, tables.small.as_mut(), SMALL_PAGE_SHIFT),
                (1, tables.large.as_mut(), LARGE.page_shift()),
            ];
            let (skipped, first) = if *entry == from { (skipped, at) } else { (0, 0) };
            at = first;
            for (which, table, shift) in both.into_iter().filter(|(which, _, _)| *which >= skipped) {
                let Some(table) = table else { continue };
                while at < table.len() {
                    let next = at.saturating_add(SOME_ENTRIES);
                    let hit: Vec<u64> = table
                        .entries_in(at..next)
                        .filter(|(_, raw)| points_there(*raw, shift))
                        .map(|(index, _)| index)
                        .collect();
                    for index in hit {
                        table.set_run(memory, index, 1, |_| 0)?;
                        revocation.pages = revocation.pages.saturating_add(1);
                    }
                    at = next;
                    revocation.cursor = Some((which, *entry, at));
                    if budget.spend(CALL) {
                        return Ok(Progress::More);
                    }
                }
                at = 0;
            }
        }
        Ok(Progress::Done)
    }

    /// Drops the translations of this tree; engines use none of them when it returns.
    pub(super) fn flush(&self, bus: &Bus) -> Result<(), GpuError> {
        invalidate(bus, self.directory(), INVALIDATE_ALL)
    }

    /// Gives all memory back.
    pub(super) fn release(self, memory: &mut HostMemory) {
        for tables in self.tables.into_values() {
            for table in [tables.small, tables.large].into_iter().flatten() {
                table.release(memory);
            }
        }
        self.directory.release(memory);
    }

    fn for_pieces(
        &mut self,
        run: Run,
        mut each: impl FnMut(&mut Tables, &Piece) -> Result<(), GpuError>,
    ) -> Result<(), GpuError> {
        for piece in run.pieces() {
            if let Some(tables) = self.tables.get_mut(&piece.entry) {
                each(tables, &piece)?;
            }
        }
        Ok(())
    }
}

impl Tables {
    fn place(&mut self, shift: u8) -> &mut Option<Table> {
        if shift == SMALL_PAGE_SHIFT { &mut self.small } else { &mut self.large }
    }

    fn of(&mut self, shift: u8) -> Option<&mut Table> {
        self.place(shift).as_mut()
    }

    fn entry(&self) -> Pde {
        let at = |table: &Option<Table>| table.as_ref().map(Table::physical);
        Pde { large: at(&self.large), small: at(&self.small) }
    }
}

/// Invalidates the translations of one page directory and waits for it.
pub(super) fn invalidate(bus: &Bus, directory: PhysicalAddress, command: u32) -> Result<(), GpuError> {
    let page = u32::try_from(directory.address >> PAGE_SHIFT).ok();
    let page = page.filter(|page| PDB::ADDR.get(PDB::ADDR.of(*page)) == *page);
    let page = page.ok_or_else(|| GpuError::Invalid(format!("Page directory at {directory:?}")))?;
    let pdb = PDB::ADDR.of(page) | PDB::APERTURE.of(target(directory.aperture));
    bus.poll(NV_PFB_PRI_MMU_CTRL, "room for a TLB flush", |value| value & QUEUE_SPACE != 0)?;
    bus.write(PDB, pdb)?;
    bus.write(NV_PFB_PRI_MMU_INVALIDATE, command)?;
    bus.poll(NV_PFB_PRI_MMU_CTRL, "a TLB flush", |value| value & QUEUE_EMPTY != 0)?;
    Ok(())
}

/// Consecutive pages of one size that our tables have.
#[derive(Clone, Copy)]
struct Run {
    va: u64,
    pages: u64,
    shift: u8,
}

/// The part of a run in one table.
struct Piece {
    /// Index of the directory entry.
    entry: u64,
    /// Index of the first table entry.
    index: u64,
    /// Number of table entries.
    count: u64,
    shift: u8,
    /// Bytes from the start of the run.
    offset: u64,
}

impl Run {
    fn new(va: u64, pages: u32, page_shift: u8) -> Result<Self, GpuError> {
        let invalid = || {
            GpuError::Invalid(format!("{pages} pages of 2^{page_shift} bytes at {va:#x} are no valid run"))
        };
        if !PAGE_SHIFTS.contains(&page_shift) || pages == 0 || !va.is_multiple_of(1 << page_shift) {
            return Err(invalid());
        }
        let end = (u64::from(pages) << page_shift).checked_add(va).ok_or_else(invalid)?;
        if end > VA_MAX.saturating_add(1) {
            return Err(invalid());
        }
        let shift = if page_shift == LARGE.page_shift() { page_shift } else { SMALL_PAGE_SHIFT };
        Ok(Self { va, pages: u64::from(pages) << (page_shift - shift), shift })
    }

    fn bytes(self) -> u64 {
        self.pages << self.shift
    }

    fn pieces(self) -> impl Iterator<Item = Piece> {
        let Self { va, pages, shift } = self;
        let mut done = 0;
        std::iter::from_fn(move || {
            let left = pages.saturating_sub(done);
            if left == 0 {
                return None;
            }
            let offset = done << shift;
            let at = va.saturating_add(offset);
            let index = LARGE.table_index(at, shift);
            let count = left.min(LARGE.table_entries(shift).saturating_sub(index));
            done = done.saturating_add(count);
            Some(Piece { entry: LARGE.directory_index(at), index, count, shift, offset })
        })
    }
}
