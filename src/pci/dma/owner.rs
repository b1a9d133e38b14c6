//! Whose memory DMA ranges are: a VM's files as this process has them mapped, and ranges that were taken away
//! while an access to them was under way.
//!
//! A function that several VMs share has an owner for each, so nothing of one VM's memory - its files, its
//! limits, an access that waits for a page of it - is in another one's way.

use super::files::FileTable;
use super::range::Range;
use crate::DmaBacking;
use crate::mapping::{MapError, Mapping};
use gpuvmk_host::reaper;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Different files (or pieces of files that cannot be mapped whole) of an owner at a time. A machine has one
/// for each module of memory that it may be given, which are 256 at most, and a few more; each costs a
/// descriptor.
pub const MAX_FILES: usize = 288;

/// How long somebody who waits for accesses to end sleeps between two looks.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// The memory of one VM. Clones are the same owner.
#[derive(Clone, Debug)]
pub struct MemoryOwner(Arc<State>);

#[derive(Debug)]
struct State {
    /// Most ranges.
    most: usize,
    /// What unmaps does not wait.
    deferring: bool,
    ranges: AtomicUsize,
    files: Mutex<FileTable>,
    /// Ranges that are in no table any more.
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

    /// The same for a thread that may not wait: unmapping takes ranges out of reach at once, and
    /// [`Self::is_settled`] tells when nothing is in them any more. Nor are pages of its files made by
    /// touching them, where this process refuses that ([`mapping::absent`](crate::mapping::absent)).
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

    /// Ranges that it has, after those that follow each other were joined.
    pub fn ranges(&self) -> usize {
        self.0.ranges.load(Ordering::Relaxed)
    }

    pub(super) fn note_ranges(&self, gone: usize, new: usize) {
        self.0.ranges.fetch_add(new, Ordering::Relaxed);
        self.0.ranges.fetch_sub(gone, Ordering::Relaxed);
    }

    /// A number that no other owner has for as long as this one is there.
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

    /// Takes ranges that no new access finds, and, unless the owner may not, waits for those that are under
    /// way.
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

    /// True when no access reaches any more what was taken away of `[iova, iova + size)`. Never waits.
    pub fn is_settled(&self, iova: u64, size: u64) -> bool {
        let mut leaving = lock(&self.0.leaving);
        let dead = take_unused(&mut leaving);
        let last = iova.saturating_add(size.saturating_sub(1));
        let settled = leaving.iter().all(|range| range.last < iova || last < range.first);
        drop(leaving);
        give_up(dead);
        settled
    }

    /// Pages of its files that could not be had, and that engines or this process met as zeros, since
    /// [`Self::restore_file`] was last called.
    pub fn lost_pages(&self) -> u64 {
        let files = lock(&self.0.files);
        files.mappings().map(|mapping| u64::from(mapping.lost_pages())).fold(0, u64::saturating_add)
    }

    /// Shows the files again where zeros took the place of their pages. No access may be under way.
    pub fn restore_file(&self) {
        for mapping in lock(&self.0.files).mappings() {
            if let Err(error) = mapping.restore_file() {
                log::error!("A VM's memory stays zeros where pages of it were missing: {error}");
            }
        }
    }
}

/// Takes the ranges out that nobody uses.
fn take_unused(leaving: &mut Vec<Arc<Range>>) -> Vec<Arc<Range>> {
    // Nobody finds them any more: an access that is not under way now never will be.
    leaving.extract_if(.., |range| Arc::get_mut(range).is_some()).collect()
}

/// Lets ranges go that nobody uses. The last one of a file unmaps it, which takes long where it was large.
fn give_up(dead: Vec<Arc<Range>>) {
    if !dead.is_empty() {
        reaper::give_up(dead);
    }
}
