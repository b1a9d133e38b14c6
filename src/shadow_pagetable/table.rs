//! One table of a guest's tree and the snapshot of what was synchronised from it.
//!
//! The snapshot is kept in pieces of a page; a piece that holds nothing takes no memory. It equals what the shadow
//! has: entries whose target was refused are stored as empty.

use std::collections::BTreeMap;

use super::budget::{Budget, WalkRefusal};
use super::format::{Entry, Leaf, MmuFormat, Shape, SubTable};
use super::runs::{RunSink, Runs};
use super::space::SyncError;
use super::{GuestMemory, Version};
use crate::chip::{Aperture, PhysicalAddress};

/// Bytes that are copied and compared at a time.
const PIECE: usize = 4096;

static EMPTY: [u8; PIECE] = [0; PIECE];

/// What a walk needs at every table.
pub(super) struct Walk<'a, 's, F, M, S> {
    pub format: F,
    pub memory: &'a M,
    pub budget: &'a mut Budget,
    pub runs: Runs<'s, S>,
    /// Pages whose target is not in the guest's memory.
    pub withheld: u64,
    /// Pieces of tables that are not in the guest's memory.
    pub unreadable: u64,
    /// Pieces of tables that were read.
    pub pieces: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    place: SubTable,
    va: u64,
    pieces: Vec<Option<Box<[u8]>>>,
    /// What the pieces were when they were read, where the memory can tell.
    versions: Vec<Option<Version>>,
    /// By entry and slot.
    children: BTreeMap<(u32, u8), Table>,
}

impl Table {
    /// A table of which nothing was synchronised yet.
    pub fn new(place: SubTable, va: u64, shape: Shape, budget: &mut Budget) -> Result<Self, WalkRefusal> {
        budget.take_table()?;
        let bytes = shape.entry_size.saturating_mul(usize::try_from(shape.entries).unwrap_or(usize::MAX));
        let mut pieces = Vec::new();
        pieces.resize_with(bytes.div_ceil(PIECE), || None);
        let versions = vec![None; pieces.len()];
        Ok(Self { place, va, pieces, versions, children: BTreeMap::new() })
    }

    /// Brings the snapshot, and through the runs the shadow, up to what the table says now.
    pub fn sync<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
    ) -> Result<(), SyncError<S::Error>> {
        let shape = walk.format.shape(self.place.kind);
        let mut offset = 0u64;
        for index in 0..self.pieces.len() {
            let address = self.place.address.address.checked_add(offset);
            let address = address.map(|address| PhysicalAddress { address, ..self.place.address });
            self.look_at_piece(walk, shape, index, address)?;
            offset = offset.saturating_add(PIECE as u64);
        }
        for child in self.children.values_mut() {
            child.sync(walk)?;
        }
        Ok(())
    }

    /// Compares a piece with its snapshot, unless the memory says that nothing was written to it since.
    fn look_at_piece<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        index: usize,
        address: Option<PhysicalAddress>,
    ) -> Result<(), SyncError<S::Error>> {
        let length = piece_length(shape, index);
        let version = address.and_then(|address| walk.memory.version(address, length));
        if version.is_some() && self.versions.get(index) == Some(&version) {
            return Ok(());
        }
        let mut copy = EMPTY;
        let fresh = copy.get_mut(..length).unwrap_or_default();
        let read = address.is_some_and(|address| walk.memory.read(address, fresh).is_ok());
        walk.pieces += 1;
        if !read {
            walk.unreadable += 1;
            fresh.fill(0);
        }
        let known = self.pieces.get(index).and_then(Option::as_deref);
        // What was refused is looked at again: what it points at may be the guest's memory by then.
        let mut settled = true;
        if known.or(EMPTY.get(..fresh.len())) != Some(&*fresh) {
            let mut old = EMPTY;
            let old = old.get_mut(..fresh.len()).unwrap_or_default();
            if let Some(known) = known {
                old.copy_from_slice(known);
            }
            let withheld = walk.withheld;
            self.sync_piece(walk, shape, index, old, fresh)?;
            settled = walk.withheld == withheld;
            self.keep(walk.budget, index, fresh)?;
        }
        if let Some(place) = self.versions.get_mut(index) {
            // From before the read: a write that came between is seen the next time.
            *place = version.filter(|_| settled);
        }
        Ok(())
    }

    /// Applies the entries of a piece that differ; clears in `fresh` those that cannot be shadowed.
    fn sync_piece<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        piece: usize,
        old: &[u8],
        fresh: &mut [u8],
    ) -> Result<(), SyncError<S::Error>> {
        let entries = old.chunks_exact(shape.entry_size).zip(fresh.chunks_exact_mut(shape.entry_size));
        for (index, (old, new)) in (first_entry(shape, piece)..).zip(entries) {
            if old == &*new {
                continue;
            }
            let before = walk.format.decode(self.place.kind, raw(old));
            let mut after = walk.format.decode(self.place.kind, raw(new));
            let withheld = match after {
                Entry::Page(leaf) => !walk.memory.contains(leaf.target, 1 << shape.entry_shift),
                Entry::Refused => true,
                Entry::Empty | Entry::Tables(_) => false,
            };
            if withheld {
                walk.withheld += 1;
                new.fill(0);
                after = Entry::Empty;
            }
            self.change_page(walk, shape, index, before, after)?;
            self.change_children(walk, shape, index, before, after)?;
        }
        Ok(())
    }

    fn change_page<F: MmuFormat, M, S: RunSink>(
        &self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        index: u32,
        before: Entry,
        after: Entry,
    ) -> Result<(), SyncError<S::Error>> {
        let va = self.entry_va(shape, index);
        match (page(before), page(after)) {
            (Some(old), Some(new)) if old == new => Ok(()),
            (_, Some(new)) => walk.runs.map(va, shape.entry_shift, new).map_err(SyncError::Sink),
            (Some(_), None) => walk.runs.unmap(va, shape.entry_shift).map_err(SyncError::Sink),
            (None, None) => Ok(()),
        }
    }

    /// A table that moved keeps its snapshot: what it says is compared, wherever it is.
    fn change_children<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        index: u32,
        before: Entry,
        after: Entry,
    ) -> Result<(), SyncError<S::Error>> {
        let va = self.entry_va(shape, index);
        for (slot, (old, new)) in (0u8..).zip(tables(before).into_iter().zip(tables(after))) {
            if old == new {
                continue;
            }
            let key = (index, slot);
            if let (Some(new), Some(child)) = (new, self.children.get_mut(&key))
                && child.place.kind == new.kind
            {
                child.place = new;
                child.versions.fill(None);
                continue;
            }
            if let Some(child) = self.children.remove(&key) {
                child.retire(walk)?;
            }
            // Only lower kinds may be named: the recursion ends whatever a format decodes.
            if let Some(new) = new.filter(|new| new.kind < self.place.kind) {
                let child = Self::new(new, va, walk.format.shape(new.kind), walk.budget)?;
                self.children.insert(key, child);
            }
        }
        Ok(())
    }

    /// Unmaps all that was synchronised from this table and from those below it.
    pub fn retire<F: MmuFormat, M: GuestMemory, S: RunSink>(
        mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
    ) -> Result<(), SyncError<S::Error>> {
        let result = self.evict(walk, &|_| true);
        self.forget(walk.budget);
        result
    }

    /// Unmaps the pages that `gone` picks and remembers them as empty, here and below.
    pub fn evict<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        gone: &dyn Fn(&EvictedPage) -> bool,
    ) -> Result<(), SyncError<S::Error>> {
        let shape = walk.format.shape(self.place.kind);
        let va = self.va;
        for ((piece, content), version) in self.pieces.iter_mut().enumerate().zip(&mut self.versions) {
            let Some(content) = content else { continue };
            let entries = content.chunks_exact_mut(shape.entry_size);
            for (index, entry) in (first_entry(shape, piece)..).zip(entries) {
                let Entry::Page(leaf) = walk.format.decode(self.place.kind, raw(entry)) else { continue };
                if gone(&EvictedPage { target: leaf.target, bytes: 1 << shape.entry_shift }) {
                    entry.fill(0);
                    // The table still says so, and is to be read again.
                    *version = None;
                    let va = va.saturating_add(u64::from(index) << shape.entry_shift);
                    walk.runs.unmap(va, shape.entry_shift).map_err(SyncError::Sink)?;
                }
            }
        }
        for child in self.children.values_mut() {
            child.evict(walk, gone)?;
        }
        Ok(())
    }

    /// Returns what the table and those below it use of the budget.
    pub fn forget(&mut self, budget: &mut Budget) {
        for piece in std::mem::take(&mut self.pieces).into_iter().flatten() {
            budget.give_bytes(piece.len());
        }
        budget.give_table();
        for child in self.children.values_mut() {
            child.forget(budget);
        }
        self.children.clear();
    }

    fn keep(&mut self, budget: &mut Budget, index: usize, fresh: &[u8]) -> Result<(), WalkRefusal> {
        let Some(place) = self.pieces.get_mut(index) else { return Ok(()) };
        if EMPTY.get(..fresh.len()) == Some(fresh) {
            if let Some(piece) = place.take() {
                budget.give_bytes(piece.len());
            }
            return Ok(());
        }
        match place {
            Some(piece) => piece.copy_from_slice(fresh),
            None => {
                budget.take_bytes(fresh.len())?;
                *place = Some(fresh.into());
            }
        }
        Ok(())
    }

    fn entry_va(&self, shape: Shape, index: u32) -> u64 {
        self.va.saturating_add(u64::from(index) << shape.entry_shift)
    }
}

/// A page that is looked at for [`Table::evict`].
pub(super) struct EvictedPage {
    target: PhysicalAddress,
    bytes: u64,
}

impl EvictedPage {
    /// True when a byte of the page is in `[start, start + size)` of system memory.
    pub fn is_in_system_memory(&self, start: u64, size: u64) -> bool {
        let first = self.target.address;
        let last = first.saturating_add(self.bytes - 1);
        self.target.aperture != Aperture::Vram
            && size > 0
            && last >= start
            && first <= start.saturating_add(size - 1)
    }
}

fn piece_length(shape: Shape, piece: usize) -> usize {
    let bytes = shape.entry_size.saturating_mul(usize::try_from(shape.entries).unwrap_or(usize::MAX));
    bytes.saturating_sub(piece.saturating_mul(PIECE)).min(PIECE)
}

fn first_entry(shape: Shape, piece: usize) -> u32 {
    u32::try_from(piece.saturating_mul(PIECE / shape.entry_size.max(1))).unwrap_or(u32::MAX)
}

fn raw(entry: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(entry).for_each(|(to, from)| *to = *from);
    u128::from_le_bytes(bytes)
}

const fn page(entry: Entry) -> Option<Leaf> {
    match entry {
        Entry::Page(leaf) => Some(leaf),
        Entry::Empty | Entry::Refused | Entry::Tables(_) => None,
    }
}

const fn tables(entry: Entry) -> [Option<SubTable>; 2] {
    match entry {
        Entry::Tables(tables) => tables,
        Entry::Empty | Entry::Refused | Entry::Page(_) => [None, None],
    }
}
