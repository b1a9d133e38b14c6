//! One table of a guest's tree and the snapshot of what was synchronised from it.
//!
//! The snapshot is kept in pieces of a page; a piece that holds nothing takes no memory. It equals what the
//! shadow has: entries whose target was refused are stored as empty.

use std::collections::BTreeMap;

use super::GuestMemory;
use super::alike_entries::{AlikeEntries, next_difference, raw, same_entry};
use super::budget::{Budget, PIECE, WalkRefusal};
use super::error::SyncError;
use super::format::{Entry, Leaf, MmuFormat, Shape, SubTable};
use super::packed::Packed;
use super::piece::{EMPTY, Piece, first_entry, piece_length, pieces};
use super::runs::{RunSink, Runs};
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// Data that a walk needs at every table.
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
    /// Where the next piece is copied to.
    pub buffer: Box<[u8]>,
}

/// Entries that continue the first of them: its number, their count, its old and its new meaning.
#[derive(Clone, Copy)]
struct Change {
    index: u32,
    count: u32,
    was: Packed,
    is: Packed,
}

#[derive(Debug)]
pub(super) struct Table {
    place: SubTable,
    va: u64,
    pieces: Vec<Piece>,
    /// By entry and slot.
    children: BTreeMap<(u32, u8), Table>,
}

impl Table {
    /// A table of which nothing was synchronised yet.
    pub fn new(place: SubTable, va: u64, shape: Shape, budget: &mut Budget) -> Result<Self, WalkRefusal> {
        budget.take_table()?;
        let mut all = Vec::new();
        all.resize_with(pieces(shape), Piece::default);
        Ok(Self { place, va, pieces: all, children: BTreeMap::new() })
    }

    /// Brings the snapshot, and through the runs the shadow, up to what the table says now of addresses below
    /// `end`.
    pub fn sync<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        end: u64,
    ) -> Result<(), SyncError<S::Error>> {
        let shape = walk.format.shape(self.place.kind);
        let mut offset = 0u64;
        for index in 0..self.pieces.len() {
            if self.entry_va(shape, first_entry(shape, index)) >= end {
                break;
            }
            let address = self.place.address.address.checked_add(offset);
            let address = address.map(|address| PhysicalAddress { address, ..self.place.address });
            self.look_at_piece(walk, shape, index, address)?;
            offset = offset.saturating_add(PIECE as u64);
        }
        for child in self.children.values_mut() {
            child.sync(walk, end)?;
        }
        Ok(())
    }

    /// Calls `visit` with address, size and content of each page that was synchronised, here and below.
    pub fn visit<F: MmuFormat>(&self, format: F, visit: &mut dyn FnMut(u64, u64, Leaf)) {
        let shape = format.shape(self.place.kind);
        for (number, piece) in self.pieces.iter().enumerate() {
            let Some(content) = &piece.content else { continue };
            let first = self.entry_va(shape, first_entry(shape, number));
            let mut alike = AlikeEntries::new(format, self.place.kind);
            for at in 0..content.len().checked_div(shape.entry_size).unwrap_or(0) {
                if let Some(leaf) = alike.at(content, at).0.leaf() {
                    visit(
                        first.saturating_add((at as u64) << shape.entry_shift),
                        1 << shape.entry_shift,
                        leaf,
                    );
                }
            }
        }
        for child in self.children.values() {
            child.visit(format, visit);
        }
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
        if version.is_some() && self.pieces.get(index).is_some_and(|piece| piece.version == version) {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut walk.buffer);
        let settled = self.compare_piece(walk, shape, index, address, &mut buffer);
        walk.buffer = buffer;
        let settled = settled?;
        if let Some(piece) = self.pieces.get_mut(index) {
            // From before the read: a write that came between is seen the next time.
            piece.version = version.filter(|_| settled);
        }
        Ok(())
    }

    /// Copies a piece into `buffer`, and applies what differs from its snapshot. Memory is read once:
    /// whatever the guest does meanwhile, what was compared is what is decoded and kept. False when something
    /// was refused, and is to be looked at again: what it points at may be the guest's memory by then.
    fn compare_piece<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        index: usize,
        address: Option<PhysicalAddress>,
        buffer: &mut Box<[u8]>,
    ) -> Result<bool, SyncError<S::Error>> {
        let Some(fresh) = buffer.get_mut(..piece_length(shape, index)) else { return Ok(true) };
        let read = address.is_some_and(|address| walk.memory.read(address, fresh).is_ok());
        walk.pieces += 1;
        if !read {
            walk.unreadable += 1;
            fresh.fill(0);
        }
        let Some(piece) = self.pieces.get_mut(index) else { return Ok(true) };
        if piece.content.as_deref().or(EMPTY.get(..fresh.len())) == Some(&*fresh) {
            return Ok(true);
        }
        let known = piece.content.take();
        let withheld = walk.withheld;
        let applied = self.sync_piece(walk, shape, index, known.as_deref(), fresh);
        let length = fresh.len();
        if let Some(piece) = self.pieces.get_mut(index) {
            piece.content = known;
            if applied.is_ok() {
                piece.keep(walk.budget, buffer, length)?;
            }
        }
        applied.map(|()| walk.withheld == withheld)
    }

    /// Applies the parts of a piece that differ from what is known of it; clears in `fresh` what cannot be
    /// shadowed.
    fn sync_piece<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        piece: usize,
        known: Option<&[u8]>,
        fresh: &mut [u8],
    ) -> Result<(), SyncError<S::Error>> {
        let first = first_entry(shape, piece);
        let known = known.or(EMPTY.get(..fresh.len())).unwrap_or_default();
        let mut from = 0;
        while let Some(part) = next_difference(known, fresh, from) {
            from = part.end;
            let before = part.start.checked_div(shape.entry_size).unwrap_or(0);
            let first = first.saturating_add(u32::try_from(before).unwrap_or(u32::MAX));
            let (old, new) = (known.get(part.clone()), fresh.get_mut(part));
            self.sync_entries(walk, shape, first, old.unwrap_or_default(), new.unwrap_or_default())?;
        }
        Ok(())
    }

    /// Applies changes of consecutive entries, from entry `first` on.
    fn sync_entries<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        first: u32,
        old: &[u8],
        fresh: &mut [u8],
    ) -> Result<(), SyncError<S::Error>> {
        let kind = self.place.kind;
        let (mut before, mut after) =
            (AlikeEntries::new(walk.format, kind), AlikeEntries::new(walk.format, kind));
        let entries = fresh.len().checked_div(shape.entry_size).unwrap_or(0);
        let mut at = 0usize;
        while at < entries {
            // Where one page changes, its neighbours seldom do.
            if same_entry(old, fresh, at, shape) {
                at = at.saturating_add(1);
                continue;
            }
            let ((was, alike_before), (is, alike_after)) = (before.at(old, at), after.at(fresh, at));
            let count = alike_before.min(alike_after).min(entries.saturating_sub(at));
            let change = Change {
                index: first.saturating_add(u32::try_from(at).unwrap_or(u32::MAX)),
                count: u32::try_from(count).unwrap_or(u32::MAX),
                was,
                is,
            };
            if was == Packed::TABLES || is == Packed::TABLES {
                let start = at.saturating_mul(shape.entry_size);
                let bytes = start..start.saturating_add(shape.entry_size);
                let old = raw(old.get(bytes.clone()).unwrap_or_default());
                self.change(walk, shape, change, fresh.get_mut(bytes.clone()).unwrap_or_default())?;
                let new = raw(fresh.get(bytes).unwrap_or_default());
                self.change_children(walk, shape, change.index, (old, new))?;
            } else if was != is {
                let start = at.saturating_mul(shape.entry_size);
                let end = start.saturating_add(count.saturating_mul(shape.entry_size));
                self.change(walk, shape, change, fresh.get_mut(start..end).unwrap_or_default())?;
            }
            at = at.saturating_add(count);
        }
        Ok(())
    }

    /// Applies a change of pages. `fresh` is the entries as they are now.
    #[inline]
    fn change<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        change: Change,
        fresh: &mut [u8],
    ) -> Result<(), SyncError<S::Error>> {
        let va = self.entry_va(shape, change.index);
        let is = match change.is.leaf() {
            Some(leaf) if walk.memory.contains(leaf.target, u64::from(change.count) << shape.entry_shift) => {
                change.is
            }
            Some(_) if change.count > 1 => return self.change_each(walk, shape, change, fresh),
            // Tables are not pages, and nothing is not refused.
            None if change.is != Packed::REFUSED => Packed::EMPTY,
            Some(_) | None => {
                walk.withheld = walk.withheld.saturating_add(1);
                fresh.fill(0);
                Packed::EMPTY
            }
        };
        if is.is_page() {
            if is == change.was {
                return Ok(());
            }
            walk.runs.map(va, shape.entry_shift, is, change.count).map_err(SyncError::Sink)
        } else if change.was.is_page() {
            walk.runs.unmap(va, shape.entry_shift, change.count).map_err(SyncError::Sink)
        } else {
            Ok(())
        }
    }

    /// Applies a change of pages that are not all the guest's, one by one.
    #[cold]
    fn change_each<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        change: Change,
        fresh: &mut [u8],
    ) -> Result<(), SyncError<S::Error>> {
        for ((index, after), entry) in (change.index..).zip(0..).zip(fresh.chunks_exact_mut(shape.entry_size))
        {
            let (was, is) = (change.was.after(after, shape), change.is.after(after, shape));
            self.change(walk, shape, Change { index, count: 1, was, is }, entry)?;
        }
        Ok(())
    }

    /// A table that moved keeps its snapshot: its content is compared, wherever it is.
    fn change_children<F: MmuFormat, M: GuestMemory, S: RunSink>(
        &mut self,
        walk: &mut Walk<'_, '_, F, M, S>,
        shape: Shape,
        index: u32,
        (before, after): (u128, u128),
    ) -> Result<(), SyncError<S::Error>> {
        let va = self.entry_va(shape, index);
        let tables = |raw| tables(walk.format.decode(self.place.kind, raw));
        for (slot, (old, new)) in (0u8..).zip(tables(before).into_iter().zip(tables(after))) {
            if old == new {
                continue;
            }
            let key = (index, slot);
            if let (Some(new), Some(child)) = (new, self.children.get_mut(&key))
                && child.place.kind == new.kind
            {
                child.place = new;
                child.pieces.iter_mut().for_each(|piece| piece.version = None);
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
        for (number, piece) in self.pieces.iter_mut().enumerate() {
            let Some(content) = &mut piece.content else { continue };
            let first = first_entry(shape, number);
            let mut alike = AlikeEntries::new(walk.format, self.place.kind);
            for at in 0..content.len().checked_div(shape.entry_size).unwrap_or(0) {
                let Some(leaf) = alike.at(content, at).0.leaf() else { continue };
                if gone(&EvictedPage { target: leaf.target, bytes: 1 << shape.entry_shift }) {
                    let start = at.saturating_mul(shape.entry_size);
                    let entry = content.get_mut(start..start.saturating_add(shape.entry_size));
                    entry.unwrap_or_default().fill(0);
                    // The table still says so, and is to be read again.
                    piece.version = None;
                    let index = u64::from(first).saturating_add(at as u64);
                    let va = va.saturating_add(index << shape.entry_shift);
                    walk.runs.unmap(va, shape.entry_shift, 1).map_err(SyncError::Sink)?;
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
        self.pieces.iter_mut().for_each(|piece| piece.forget(budget));
        budget.give_table();
        for child in self.children.values_mut() {
            child.forget(budget);
        }
        self.children.clear();
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

const fn tables(entry: Entry) -> [Option<SubTable>; 2] {
    match entry {
        Entry::Tables(tables) => tables,
        Entry::Empty | Entry::Refused | Entry::Page(_) => [None, None],
    }
}
