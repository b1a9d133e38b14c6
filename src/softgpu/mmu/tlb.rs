//! Translations that the MMU remembers, and that stay until the driver flushes them, whatever the page tables
//! say by then.
//!
//! Each page directory has two buffers, as hardware has: one at the hub for the host unit, one for engines. A
//! buffer has a fixed number of places, so a translation may also leave to make room. Only translations
//! are kept, never their absence. Workers of a grid have some of the engines' at hand ([`super::near`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard};
use gpuvmk_chip::PhysicalAddress;

/// log2 of the smallest page.
const SMALL_PAGE_SHIFT: u8 = 12;

/// Sets of a buffer for small pages, and for each larger size; powers of two.
const SMALL_SETS: usize = 128;
const LARGE_SETS: usize = 32;

/// Pages of a set.
const WAYS: usize = 4;

/// A page as the tables described it when they were last walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Its first virtual address.
    pub(crate) va: u64,
    /// log2 of its bytes.
    pub(crate) shift: u8,
    /// Where its first byte lies.
    pub(crate) target: PhysicalAddress,
    /// True if stores to the page fault.
    pub(crate) read_only: bool,
    /// True if only privileged units may use the page.
    pub(crate) privileged: bool,
    /// Storage kind.
    pub(crate) kind: u8,
}

/// Pages of one size that share a place; the oldest leaves first.
#[derive(Clone, Copy, Debug)]
struct Set {
    /// Each page's number, beside each other: a look-up reads nothing else of the pages that it does not
    /// want.
    numbers: [u64; WAYS],
    pages: [Option<Page>; WAYS],
    next: usize,
}

/// The number of no page: virtual addresses have less than 64 bits.
const NO_PAGE: u64 = u64::MAX;

impl Default for Set {
    fn default() -> Self {
        Self { numbers: [NO_PAGE; WAYS], pages: [None; WAYS], next: 0 }
    }
}

impl Set {
    fn lookup(&self, number: u64) -> Option<Page> {
        let way = self.numbers.iter().position(|known| *known == number)?;
        self.pages.get(way).copied().flatten()
    }

    fn insert(&mut self, number: u64, page: Page) {
        let same_or_free = |known: &u64| *known == number || *known == NO_PAGE;
        let way = self.numbers.iter().position(same_or_free).unwrap_or(self.next);
        if let (Some(known), Some(place)) = (self.numbers.get_mut(way), self.pages.get_mut(way)) {
            (*known, *place) = (number, Some(page));
            self.next = (way + 1) % WAYS;
        }
    }
}

/// The pages of one size.
#[derive(Debug)]
struct Class {
    shift: u8,
    /// Empty until the first page of this size.
    sets: Vec<Set>,
}

/// A translation buffer.
#[derive(Debug)]
struct Sets {
    /// Its parts by page size, in ascending order.
    classes: Vec<Class>,
}

impl Sets {
    fn new(page_shifts: &[u8]) -> Self {
        let class = |shift: &u8| Class { shift: *shift, sets: Vec::new() };
        Self { classes: page_shifts.iter().map(class).collect() }
    }

    fn clear(&mut self) {
        for class in &mut self.classes {
            class.sets.fill(Set::default());
        }
    }

    fn lookup(&self, va: u64) -> Option<Page> {
        let in_class = |class: &Class| {
            // A class without sets has no pages either.
            class.sets.get(place(va, class.shift, class.sets.len()))?.lookup(va >> class.shift)
        };
        self.classes.iter().find_map(in_class)
    }

    fn insert(&mut self, page: Page) {
        let Some(class) = self.classes.iter_mut().find(|class| class.shift == page.shift) else { return };
        if class.sets.is_empty() {
            let sets = if page.shift == SMALL_PAGE_SHIFT { SMALL_SETS } else { LARGE_SETS };
            class.sets = vec![Set::default(); sets];
        }
        let index = place(page.va, page.shift, class.sets.len());
        if let Some(set) = class.sets.get_mut(index) {
            set.insert(page.va >> page.shift, page);
        }
    }
}

/// The set of a page: its number, with the upper bits folded in so that buffers at round distances do not
/// meet.
fn place(va: u64, shift: u8, sets: usize) -> usize {
    let page = va >> shift;
    let folded = page ^ (page >> 7) ^ (page >> 14) ^ (page >> 21);
    // The number of sets is a power of two, or 0 and then nothing is looked up with the result.
    usize::try_from(folded & (sets as u64).wrapping_sub(1)).unwrap_or(0)
}

/// Which buffer an access looks in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    /// The buffer at the hub, for the host unit.
    Hub,
    /// The buffer for engines.
    Engines,
}

/// The remembered translations of one page directory.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) directory: PhysicalAddress,
    /// Held to read during an access, and to write to be sure that there is none. In shards, so that threads
    /// which access at once do not write to one line of the processors' caches.
    in_use: ShardedLock<()>,
    hub: Mutex<Sets>,
    engines: Mutex<Sets>,
    /// See [`Space::age`].
    age: AtomicU64,
}

/// The next [`Space::age`]; 0 is none.
static NEXT_AGE: AtomicU64 = AtomicU64::new(1);

impl Space {
    pub(crate) fn new(directory: PhysicalAddress, page_shifts: &[u8]) -> Self {
        let sets = || Mutex::new(Sets::new(page_shifts));
        let age = AtomicU64::new(NEXT_AGE.fetch_add(1, Ordering::Relaxed));
        Self { directory, in_use: ShardedLock::new(()), hub: sets(), engines: sets(), age }
    }

    /// Says which translations of engines are still remembered: those of another age, or of another space,
    /// are not. It stays while the space is in use.
    pub(crate) fn age(&self) -> u64 {
        // What made it is ordered by `in_use`.
        self.age.load(Ordering::Relaxed)
    }

    fn sets(&self, buffer: Buffer) -> MutexGuard<'_, Sets> {
        let sets = match buffer {
            Buffer::Hub => &self.hub,
            Buffer::Engines => &self.engines,
        };
        sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lookup(&self, buffer: Buffer, va: u64) -> Option<Page> {
        self.sets(buffer).lookup(va)
    }

    pub(crate) fn insert(&self, buffer: Buffer, page: Page) {
        self.sets(buffer).insert(page);
    }

    /// To be held during an access.
    pub(crate) fn in_use(&self) -> ShardedLockReadGuard<'_, ()> {
        self.in_use.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops translations; when it returns, none of them is in use.
    pub(crate) fn flush(&self, hub_only: bool) {
        let exclusive = self.in_use.write().unwrap_or_else(PoisonError::into_inner);
        self.clear(hub_only);
        drop(exclusive);
    }

    fn clear(&self, hub_only: bool) {
        self.sets(Buffer::Hub).clear();
        if !hub_only {
            self.sets(Buffer::Engines).clear();
            self.age.store(NEXT_AGE.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Aperture;

    fn page(va: u64, shift: u8, address: u64) -> Page {
        let target = PhysicalAddress { aperture: Aperture::Vram, address };
        Page { va, shift, target, read_only: false, privileged: false, kind: 0 }
    }

    fn space() -> Space {
        Space::new(PhysicalAddress { aperture: Aperture::Vram, address: 0 }, &[12, 16, 17])
    }

    #[test]
    fn pages_are_found_by_any_address_inside() {
        let space = space();
        space.insert(Buffer::Engines, page(0x5000, 12, 0x1000));
        space.insert(Buffer::Engines, page(0x10_0000, 17, 0x20_0000));

        let found = |va| space.lookup(Buffer::Engines, va).map(|page| page.target.address);
        assert_eq!(found(0x5fff), Some(0x1000));
        assert_eq!(found(0x11_ffff), Some(0x20_0000));
        assert_eq!(found(0x6000), None);
        assert_eq!(found(0x12_0000), None);
        assert_eq!(space.lookup(Buffer::Hub, 0x5000), None);
    }

    #[test]
    fn clearing_the_hub_keeps_the_engines() {
        let space = space();
        for buffer in [Buffer::Hub, Buffer::Engines] {
            space.insert(buffer, page(0x5000, 12, 0x1000));
        }
        space.clear(true);
        assert!(space.lookup(Buffer::Hub, 0x5000).is_none());
        assert!(space.lookup(Buffer::Engines, 0x5000).is_some());
        space.clear(false);
        assert!(space.lookup(Buffer::Engines, 0x5000).is_none());
    }

    #[test]
    fn a_full_set_drops_its_oldest_page() {
        let mut set = Set::default();
        for number in 0..5 {
            set.insert(number, page(number << 12, 12, number << 20));
        }
        assert!(set.lookup(0).is_none());
        assert!((1..5).all(|number| set.lookup(number).is_some()));
    }

    #[test]
    fn a_page_walked_again_replaces_itself() {
        let mut set = Set::default();
        set.insert(5, page(0x5000, 12, 0x1000));
        set.insert(5, page(0x5000, 12, 0x2000));
        assert_eq!(set.lookup(5).map(|page| page.target.address), Some(0x2000));
        assert_eq!(set.pages.iter().flatten().count(), 1);
    }
}
