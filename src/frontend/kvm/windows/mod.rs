//! Regions whose content is memory, mapped into the guest while they show it: no exit for a load or a store
//! of it.
//!
//! A guest's access to an unmapped page is an exit like any other. After it was carried out, the block of the
//! region around it is examined, and the memory that it shows is mapped: each run of pages is one memory slot
//! over addresses of this process that are reserved for the region. When the function says that a region may
//! show other memory, each mapped page is compared with what it shows now. Pages that moved get other memory
//! below the same slot; a run that lost a page is unmapped. Both happens before the call returns, which the
//! function makes before the guest's access that caused it ends.
//!
//! The lock is held while the function is asked what it shows, and never while it carries an access out.

mod pages;

use super::ram::Ram;
use super::slots::{HostMemory, Slot, Slots};
use anyhow::Context;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_pci::mapping::{Access, FilePiece, Reservation};
use gpuvmk_pci::{Backing, DirectWindow, PciFunction, PlainMemory, Region};
use pages::{PAGES, Page, Pages, bytes, copy_pages, piece_end, pieces_of, runs_of};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are looked through at a time.
const BLOCK: u64 = 2 << 20;
/// Most runs that are mapped at a time, of all regions of a function: each is a memory slot.
const MOST_RUNS: usize = 2048;
/// Most pieces of files that a block may be made of: each is an entry of this process's memory map.
const MOST_PIECES: usize = 64;
/// Most pieces of all blocks together.
const MOST_PIECES_IN_ALL: usize = 8192;

/// How much of a function is mapped, and what that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Bytes mapped now.
    pub bytes: u64,
    /// Runs of pages that they are made of now.
    pub runs: usize,
    /// Runs that were mapped.
    pub mapped: u64,
    /// Runs that were unmapped.
    pub unmapped: u64,
    /// Pages that got other memory below their slot.
    pub moved: u64,
    /// Blocks that stay trapped because they, or the whole, would be made of too many pieces.
    pub too_many: u64,
}

/// Descriptors of our own of the files that were shown, by the function's numbers.
type Files = BTreeMap<i32, OwnedFd>;

/// Pages of a block that one slot shows.
#[derive(Debug)]
struct Run {
    first: usize,
    end: usize,
    #[expect(dead_code, reason = "it is dropped with the run")]
    slot: Slot,
}

/// A block that was looked through.
#[derive(Debug)]
struct Block {
    /// The present mappings.
    pages: Box<Pages>,
    runs: Vec<Run>,
    pieces: usize,
    /// Nothing has changed since: what is not mapped cannot be.
    seen: bool,
}

impl Default for Block {
    fn default() -> Self {
        Self { pages: Box::new([Page::Trapped; PAGES]), runs: Vec::new(), pieces: 0, seen: false }
    }
}

impl Block {
    fn is_mapped(&self, page: usize) -> bool {
        self.runs.iter().any(|run| (run.first..run.end).contains(&page))
    }
}

/// A region that the guest sees.
#[derive(Debug)]
struct Mapped {
    gpa: u64,
    size: u64,
    memory: Arc<Reservation>,
    blocks: BTreeMap<u64, Block>,
    /// Memory that the region always shows, and its range.
    plain: Option<(Range<u64>, Slot)>,
}

/// Where a block of a region is shown.
struct Place<'a> {
    /// Of the region.
    gpa: u64,
    /// Of the region.
    memory: &'a Arc<Reservation>,
    /// Of the block, in the region.
    begin: u64,
}

impl Place<'_> {
    fn hide(&self, first: usize, end: usize) {
        if let Err(error) = self.memory.hide(self.begin + bytes(first), bytes(end - first)) {
            log::warn!("Addresses of a window keep their memory: {error}");
        }
    }
}

#[derive(Debug, Default)]
struct State {
    regions: BTreeMap<u32, Mapped>,
    files: Files,
    pieces: usize,
    counts: WindowCounts,
}

/// The mapped windows of one function.
pub(super) struct Windows {
    function: Arc<dyn PciFunction>,
    slots: Arc<Slots>,
    ram: Arc<Ram>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Windows").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Windows {
    pub(super) fn new(function: Arc<dyn PciFunction>, slots: Arc<Slots>, ram: Arc<Ram>) -> Arc<Self> {
        Arc::new(Self { function, slots, ram, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> WindowCounts {
        self.state().counts
    }

    /// A region decodes at `gpa` from now on.
    pub(super) fn put(&self, region: Region, gpa: u64, size: u64) {
        match Reservation::new(size) {
            Ok(memory) => {
                let memory = Arc::new(memory);
                let plain = self.map_plain(region, gpa, &memory).unwrap_or_else(|error| {
                    log::warn!("{region:?} has memory that stays trapped: {error:#}");
                    None
                });
                let mapped = Mapped { gpa, size, memory, blocks: BTreeMap::new(), plain };
                self.state().regions.insert(region.index(), mapped);
            }
            Err(error) => log::warn!("{region:?} is trapped as a whole: {error}"),
        }
    }

    /// Maps what is memory for as long as the function lives.
    fn map_plain(
        &self,
        region: Region,
        gpa: u64,
        memory: &Arc<Reservation>,
    ) -> anyhow::Result<Option<(Range<u64>, Slot)>> {
        let Some(map) = self.function.direct_map() else { return Ok(None) };
        let Some(PlainMemory { offset, memory: file }) = map.plain_memory(region)? else {
            return Ok(None);
        };
        let piece = FilePiece { fd: file.fd.as_fd(), offset: file.offset, size: file.size };
        memory.show(offset, &piece, Access::ReadWrite)?;
        let host = HostMemory::Reservation(Arc::clone(memory));
        let slot = self.slots.insert(gpa.saturating_add(offset), &host, offset, file.size, true)?;
        Ok(Some((offset..offset.saturating_add(file.size), slot)))
    }

    /// A region does not decode any more.
    pub(super) fn take(&self, region: Region) {
        let mut state = self.state();
        let State { regions, pieces, counts, .. } = &mut *state;
        if let Some(mut mapped) = regions.remove(&region.index()) {
            mapped.forget(pieces, counts);
        }
    }

    /// An access to `offset` of a region was carried out as an exit: maps what can be mapped around it.
    pub(super) fn trapped(&self, region: Region, offset: u64) {
        let number = offset / BLOCK;
        let mut guard = self.state();
        let State { regions, files, pieces: pieces_in_all, counts } = &mut *guard;
        let Some(mapped) = regions.get_mut(&region.index()) else { return };
        let block = mapped.blocks.entry(number).or_default();
        if block.seen {
            return;
        }
        block.seen = true;
        let pages = self.look(files, region, number, mapped.size);
        let pieces = pieces_of(&*pages);
        let others = *pieces_in_all - block.pieces;
        if pieces > MOST_PIECES || others + pieces > MOST_PIECES_IN_ALL {
            counts.too_many += 1;
            return;
        }
        *pieces_in_all = others + pieces;
        block.pieces = pieces;
        for (first, end) in runs_of(&*pages) {
            let mut from = first;
            while from < end {
                // Mapped pages were updated when they changed.
                if block.is_mapped(from) {
                    from += 1;
                    continue;
                }
                let to = (from..end).find(|page| block.is_mapped(*page)).unwrap_or(end);
                if counts.runs >= MOST_RUNS {
                    counts.too_many += 1;
                    return;
                }
                let place = Place { gpa: mapped.gpa, memory: &mapped.memory, begin: number * BLOCK };
                match self.map(files, &place, &pages, from, to) {
                    Ok(slot) => {
                        block.runs.push(Run { first: from, end: to, slot });
                        copy_pages(&mut block.pages, &pages, from, to);
                        counts.runs += 1;
                        counts.mapped += 1;
                        counts.bytes += bytes(to - from);
                    }
                    Err(error) => {
                        log::warn!("{region:?} stays trapped at {:#x}: {error}", place.begin + bytes(from));
                        return;
                    }
                }
                from = to;
            }
        }
    }

    /// A region may show something else: what is mapped of it follows.
    pub(super) fn compare(&self, region: Region) {
        let mut guard = self.state();
        let State { regions, files, pieces: pieces_in_all, counts } = &mut *guard;
        let Some(mapped) = regions.get_mut(&region.index()) else { return };
        mapped.blocks.retain(|_, block| !block.runs.is_empty());
        for (number, block) in &mut mapped.blocks {
            block.seen = false;
            let pages = self.look(files, region, *number, mapped.size);
            let place = Place { gpa: mapped.gpa, memory: &mapped.memory, begin: number * BLOCK };
            let Block { pages: known, runs, .. } = &mut *block;
            runs.retain(|run| {
                let stays = self.follow(files, &place, run, known, &pages, counts);
                if !stays {
                    counts.runs -= 1;
                    counts.unmapped += 1;
                    counts.bytes -= bytes(run.end - run.first);
                }
                stays
            });
            // Addresses without a slot need not keep memory.
            for (first, end) in gaps(runs, known) {
                place.hide(first, end);
                known.iter_mut().take(end).skip(first).for_each(|page| *page = Page::Trapped);
            }
            *pieces_in_all -= block.pieces;
            block.pieces = pieces_of(&*block.pages);
            *pieces_in_all += block.pieces;
        }
    }

    /// Has a run show what its pages are now. False when it cannot: it is to go then.
    fn follow(
        &self,
        files: &Files,
        place: &Place<'_>,
        run: &Run,
        known: &mut Pages,
        pages: &Pages,
        counts: &mut WindowCounts,
    ) -> bool {
        let (Some(old), Some(new)) = (known.get_mut(run.first..run.end), pages.get(run.first..run.end))
        else {
            return false;
        };
        if old == new {
            return true;
        }
        let same_kind = old.iter().zip(new).all(|(old, new)| old.writable() == new.writable());
        if !same_kind || pieces_of(pages) > MOST_PIECES {
            return false;
        }
        let mut from = 0;
        while from < new.len() {
            if old.get(from) == new.get(from) {
                from += 1;
                continue;
            }
            let to = piece_end(new, from);
            if let Err(error) = self.show_piece(files, place, run.first + from, new, from, to) {
                log::warn!(
                    "A window is trapped again at {:#x}: {error}",
                    place.begin + bytes(run.first + from)
                );
                return false;
            }
            counts.moved += (to - from) as u64;
            from = to;
        }
        old.copy_from_slice(new);
        true
    }

    /// Nothing of any region is what it was.
    pub(super) fn forget_all(&self) {
        let mut guard = self.state();
        let State { regions, files, pieces, counts } = &mut *guard;
        for mapped in regions.values_mut() {
            mapped.forget(pieces, counts);
        }
        files.clear();
    }

    /// Finds out what the pages of a block show.
    fn look(&self, files: &mut Files, region: Region, number: u64, limit: u64) -> Box<Pages> {
        let mut pages = Box::new([Page::Trapped; PAGES]);
        let begin = number * BLOCK;
        let size = BLOCK.min(limit.saturating_sub(begin));
        let Some(map) = self.function.direct_map() else { return pages };
        map.show(region, begin, size, &mut |window: DirectWindow<'_>| {
            let Some(inside) = window.offset.checked_sub(begin) else { return };
            let first = usize::try_from(inside / PAGE_SIZE).unwrap_or(PAGES);
            let count = usize::try_from(window.size / PAGE_SIZE).unwrap_or(0);
            let writable = window.writable;
            let of = |at: u64| match window.backing {
                Backing::File { fd, offset } => {
                    Page::File { fd: fd.as_raw_fd(), offset: offset.wrapping_add(at), writable }
                }
                // Memory that the machine does not have: the function says what such an access does.
                Backing::Bus(address)
                    if self.ram.offset_of(address.wrapping_add(at), PAGE_SIZE).is_none() =>
                {
                    Page::Trapped
                }
                Backing::Bus(address) => Page::Bus { address: address.wrapping_add(at), writable },
            };
            if let Backing::File { fd, .. } = window.backing
                && !files.contains_key(&fd.as_raw_fd())
            {
                let Ok(kept) = fd.try_clone_to_owned() else { return };
                files.insert(fd.as_raw_fd(), kept);
            }
            let places = pages.iter_mut().skip(first).take(count);
            places.zip((0..).map(bytes)).for_each(|(place, at)| *place = of(at));
        });
        pages
    }

    /// Maps pages `from..to` of a block, which are all to be loaded from, or all to be stored to as well.
    fn map(
        &self,
        files: &Files,
        place: &Place<'_>,
        pages: &Pages,
        from: usize,
        to: usize,
    ) -> anyhow::Result<Slot> {
        let run = pages.get(..to).unwrap_or_default();
        let mut at = from;
        while at < to {
            let end = piece_end(run, at);
            self.show_piece(files, place, at, run, at, end)?;
            at = end;
        }
        let writable = run.get(from).and_then(|page| page.writable()).unwrap_or(false);
        let memory = HostMemory::Reservation(Arc::clone(place.memory));
        let offset = place.begin + bytes(from);
        Ok(self.slots.insert(place.gpa + offset, &memory, offset, bytes(to - from), writable)?)
    }

    /// Has the addresses of the block's page `at` and the following show `pages[from..to]`, one piece of a
    /// file.
    fn show_piece(
        &self,
        files: &Files,
        place: &Place<'_>,
        at: usize,
        pages: &[Page],
        from: usize,
        to: usize,
    ) -> anyhow::Result<()> {
        let (fd, offset) = match pages.get(from) {
            Some(Page::File { fd, offset, .. }) => (files.get(fd).map(AsFd::as_fd), *offset),
            Some(Page::Bus { address, .. }) => {
                let size = bytes(to - from);
                (Some(self.ram.file()), self.ram.offset_of(*address, size).context("it leaves main memory")?)
            }
            Some(Page::Trapped) | None => (None, 0),
        };
        let fd = fd.context("its file is not known")?;
        let piece = FilePiece { fd, offset, size: bytes(to - from) };
        Ok(place.memory.show(place.begin + bytes(at), &piece, Access::ReadWrite)?)
    }
}

impl Mapped {
    /// Takes everything away that is mapped.
    fn forget(&mut self, pieces: &mut usize, counts: &mut WindowCounts) {
        for (_, block) in std::mem::take(&mut self.blocks) {
            *pieces -= block.pieces;
            counts.runs -= block.runs.len();
            counts.unmapped += block.runs.len() as u64;
            counts.bytes -= block.runs.iter().map(|run| bytes(run.end - run.first)).sum::<u64>();
        }
        // The slots are gone: these addresses are unused. Plain memory stays mapped.
        let plain = self.plain.as_ref().map_or(0..0, |(range, _)| range.clone());
        for part in [0..plain.start, plain.end..self.size].iter().filter(|part| !part.is_empty()) {
            if let Err(error) = self.memory.hide(part.start, part.end - part.start) {
                log::warn!("Addresses of a window keep their memory: {error}");
            }
        }
    }
}

/// Ranges of known pages that no run has any more.
fn gaps(runs: &[Run], known: &Pages) -> Vec<(usize, usize)> {
    let is_left = |at: usize, page: &Page| {
        page.writable().is_some() && !runs.iter().any(|run| (run.first..run.end).contains(&at))
    };
    let mut gaps: Vec<(usize, usize)> = Vec::new();
    for (at, _) in known.iter().enumerate().filter(|(at, page)| is_left(*at, page)) {
        match gaps.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            _ => gaps.push((at, at + 1)),
        }
    }
    gaps
}
