//! The owner of DMA ranges: a VM's files as this process has them mapped, and ranges that were removed while
//! an access to them was under way.
//!
//! A function that several VMs share has an owner for each. So one VM's files, limits and slow pages do not
//! affect another VM.

use super::backing::DmaBacking;
use super::files::FileTable;
use crate::mapping::{MapError, Mapping};
use gpuvmk_host::reaper;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Different files (or pieces of files that cannot be mapped whole) of an owner at a time. A machine has one
/// for each module of memory that it may be given, which are 256 at most, and a few more; each costs a
/// descriptor.
pub const MAX_FILES: usize = 288;

/// Pause between two checks for accesses that have to end.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// The memory of one VM. Clones are the same owner.
#[derive(Clone, Debug)]
pub struct MemoryOwner(Arc<State>);

#[derive(Debug)]
struct State {
    /// Limit of ranges.
    most: usize,
    /// True when unmapping does not wait for accesses under way.
    deferring: bool,
    ranges: AtomicUsize,
    files: Mutex<FileTable>,
    /// Ranges that were removed from the table and may still be accessed.
    leaving: Mutex<Vec<Arc<Range>>>,
    ended: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves these consistent: every change is complete before anything can fail.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryOwner {
    /// An owner of at most `ranges` ranges, whose unmapping waits until accesses under way have ended.
    pub fn new(ranges: usize) -> Self {
        Self::with(ranges, MAX_FILES, false)
    }

    /// The same for a thread that must not wait. Unmapping takes ranges out of reach at once, and
    /// [`Self::is_settled`] tells when accesses have ended. Absent pages of its files are not allocated by an
    /// access, where this process refuses that ([`mapping::absent`](crate::mapping::absent)).
    pub fn deferring(ranges: usize) -> Self {
        Self::with(ranges, MAX_FILES, true)
    }

    pub(super) fn with(most: usize, files: usize, deferring: bool) -> Self {
        Self(Arc::new(State {
            most,
            deferring,
            ranges: AtomicUsize::new(0),
            files: Mutex::new(FileTable::new(files, deferring)),
            leaving: Mutex::new(Vec::new()),
            ended: Condvar::new(),
        }))
    }

    /// Most ranges that it may have.
    pub fn most_ranges(&self) -> usize {
        self.0.most
    }

    /// Number of its ranges; adjacent ones that were joined count as one.
    pub fn ranges(&self) -> usize {
        self.0.ranges.load(Ordering::Relaxed)
    }

    pub(super) fn note_ranges(&self, gone: usize, new: usize) {
        self.0.ranges.fetch_add(new, Ordering::Relaxed);
        self.0.ranges.fetch_sub(gone, Ordering::Relaxed);
    }

    /// A number that is unique among the owners that exist.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Memory that shows `size` bytes of `backing`, and the offset of the first byte in it.
    pub fn memory(
        &self,
        backing: &DmaBacking,
        size: u64,
        writable: bool,
    ) -> Result<(Arc<Mapping>, u64), MapError> {
        lock(&self.0.files).map(backing, size, writable)
    }

    /// Takes ranges that no new access can find. Waits until accesses under way have ended, unless the owner
    /// defers.
    pub(super) fn retire(&self, gone: Vec<Arc<Range>>) {
        if gone.is_empty() {
            return;
        }
        let mut leaving = lock(&self.0.leaving);
        leaving.extend(gone);
        let mut dead = take_unused(&mut leaving);
        while !self.0.deferring && !leaving.is_empty() {
            let waited = self.0.ended.wait_timeout(leaving, LOOK_AGAIN);
            leaving = waited.unwrap_or_else(PoisonError::into_inner).0;
            dead.extend(take_unused(&mut leaving));
        }
        drop(leaving);
        give_up(dead);
    }

    /// True when no access to removed ranges of `[iova, iova + size)` is under way any more. Never waits.
    pub fn is_settled(&self, iova: u64, size: u64) -> bool {
        let mut leaving = lock(&self.0.leaving);
        let dead = take_unused(&mut leaving);
        let last = iova.saturating_add(size.saturating_sub(1));
        let settled = leaving.iter().all(|range| range.last < iova || last < range.first);
        drop(leaving);
        give_up(dead);
        settled
    }

    /// Number of pages of its files that were missing and were replaced by zeros, since
    /// [`Self::restore_file`] was last called.
    pub fn lost_pages(&self) -> u64 {
        let files = lock(&self.0.files);
        files.mappings().map(|mapping| u64::from(mapping.lost_pages())).fold(0, u64::saturating_add)
    }

    /// Maps the files again where zeros replaced their pages. No access may be under way.
    pub fn restore_file(&self) {
        for mapping in lock(&self.0.files).mappings() {
            if let Err(error) = mapping.restore_file() {
                log::error!("A VM's memory stays zeros where pages of it were missing: {error}");
            }
        }
    }
}

/// A range of bus addresses and the memory behind it. Both ends are included: a range may end at 2^64.
///
/// A range never changes. When others come and go, new ranges take its place, so an access that holds one
/// needs no lock.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) writable: bool,
    /// Memory, and the offset in it of the first byte.
    pub(super) memory: Option<(Arc<Mapping>, u64)>,
    pub(super) owner: MemoryOwner,
}

impl Range {
    /// Size in bytes.
    pub(super) fn size(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// True when `next` follows, at its addresses and in its file, with the same rights.
    fn goes_on_in(&self, next: &Self) -> bool {
        let memory = match (&self.memory, &next.memory) {
            (None, None) => true,
            (Some((mine, offset)), Some((theirs, next_offset))) => {
                Arc::ptr_eq(mine, theirs) && offset.checked_add(self.size()) == Some(*next_offset)
            }
            _ => false,
        };
        memory
            && self.last.checked_add(1) == Some(next.first)
            && self.writable == next.writable
            && self.owner.is(&next.owner)
    }

    /// Both as one, if they are one memory.
    pub(super) fn joined(&self, next: &Self) -> Option<Self> {
        self.goes_on_in(next).then(|| Self { last: next.last, ..self.part(self.first, self.last) })
    }

    /// The part of it between two of its addresses, both included.
    pub(super) fn part(&self, first: u64, last: u64) -> Self {
        let memory = self.memory.as_ref();
        let memory =
            memory.map(|(memory, offset)| (Arc::clone(memory), offset.saturating_add(first - self.first)));
        Self { first, last, writable: self.writable, memory, owner: self.owner.clone() }
    }
}

/// Takes the unused ranges out.
fn take_unused(leaving: &mut Vec<Arc<Range>>) -> Vec<Arc<Range>> {
    // They are in no table: no new access can begin.
    leaving.extract_if(.., |range| Arc::get_mut(range).is_some()).collect()
}

/// Drops unused ranges. The last one of a file unmaps it, which takes long for a large file.
fn give_up(dead: Vec<Arc<Range>>) {
    if !dead.is_empty() {
        reaper::give_up(dead);
    }
}
