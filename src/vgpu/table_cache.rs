//! A copy of VRAM pages that only CPUs write, for physical GPUs whose VRAM is slow to read.
//!
//! Over the bus, a read of VRAM costs about a microsecond for each word; a walk of page tables would take
//! milliseconds. So a page that a walk or an instance-memory window reads is read from the device once, and
//! kept up to date by every CPU write that comes through this process (all of the guest's do). Engines'
//! writes are missed, so memory that engines write must be read from the device.
//!
//! Pages are spread over shards. A shard's lock is held while a page is fetched and while a write goes to the
//! device, so that a copy never misses a write that came meanwhile. The least recently used page of a shard
//! goes when it is full.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_ordered::OrderedMap;

/// Bytes of a page, as an index.
const PAGE: usize = 4096;

const _: () = assert!(PAGE as u64 == PAGE_SIZE);

/// Shards: few enough that each holds a useful number of pages, many enough that a slow fetch seldom holds up
/// others.
const SHARDS: u64 = 16;

/// The pages that are known.
#[derive(Debug)]
pub struct TableCache {
    shards: Vec<Mutex<Shard>>,
}

#[derive(Debug)]
struct Shard {
    /// Limit of pages.
    room: usize,
    pages: HashMap<u64, Page>,
    /// Page numbers by when they were used last.
    order: OrderedMap<u64, u64>,
    now: u64,
}

#[derive(Debug)]
struct Page {
    used: u64,
    /// When it was fetched or written last, by the shard's clock.
    written: u64,
    data: Box<[u8; PAGE]>,
}

impl TableCache {
    /// An empty cache that holds `bytes` at most, and a page for each shard at least.
    pub fn new(bytes: usize) -> Self {
        // CAST: a small constant.
        #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
        let room = (bytes / PAGE / SHARDS as usize).max(1);
        let shard = || Shard { room, pages: HashMap::new(), order: OrderedMap::new(), now: 0 };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect() }
    }

    /// Reads `[address, address + data.len())`; `fetch` reads a whole page, which starts at the given
    /// address, from the device. The caller has checked the range.
    ///
    /// # Errors
    /// Those of `fetch`.
    pub fn read<E>(
        &self,
        address: u64,
        data: &mut [u8],
        mut fetch: impl FnMut(u64, &mut [u8; PAGE]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (page, inside, part) in pieces(address, data.len()) {
            let Some(mut shard) = self.shard(page) else { continue };
            let source = shard.get(page, &mut fetch)?;
            if let (Some(to), Some(from)) = (data.get_mut(part), source.get(inside)) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// Writes `data` at `address`: `store` writes a part of it to the device, then the copy follows.
    ///
    /// # Errors
    /// Those of `store`; the copy of that page is dropped then.
    pub fn write<E>(
        &self,
        address: u64,
        data: &[u8],
        mut store: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for (page, inside, part) in pieces(address, data.len()) {
            let (Some(mut shard), Some(part)) = (self.shard(page), data.get(part)) else { continue };
            let at = page.saturating_mul(PAGE_SIZE).saturating_add(inside.start as u64);
            let stored = store(at, part);
            if stored.is_err() {
                shard.forget(page);
            } else {
                shard.write(page, inside, part);
            }
            stored?;
        }
        Ok(())
    }

    /// When the page with `size` bytes at `address` was fetched or written last: a number that no other
    /// contents of it have or had. `None` when there is no copy of it, or when it is more than one page.
    pub fn version(&self, address: u64, size: usize) -> Option<u64> {
        let last = address.checked_add((size as u64).checked_sub(1)?)?;
        if address / PAGE_SIZE != last / PAGE_SIZE {
            return None;
        }
        let page = address / PAGE_SIZE;
        self.shard(page)?.pages.get(&page).map(|page| page.written)
    }

    /// Forgets everything: the memory was changed from elsewhere.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.pages.clear();
            shard.order.clear();
        }
    }

    /// Number of cached pages.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).pages.len()).sum()
    }

    fn shard(&self, page: u64) -> Option<MutexGuard<'_, Shard>> {
        let index = usize::try_from(page % SHARDS).ok()?;
        self.shards.get(index).map(lock)
    }
}

impl Shard {
    /// The page, fetched if it is not known.
    fn get<E>(
        &mut self,
        page: u64,
        fetch: impl FnOnce(u64, &mut [u8; PAGE]) -> Result<(), E>,
    ) -> Result<&[u8; PAGE], E> {
        self.now = self.now.saturating_add(1);
        let now = self.now;
        if !self.pages.contains_key(&page) {
            let mut data = Box::new([0; PAGE]);
            fetch(page.saturating_mul(PAGE_SIZE), &mut data)?;
            while self.pages.len() >= self.room
                && let Some((_, oldest)) = self.order.pop_first()
            {
                self.pages.remove(&oldest);
            }
            self.pages.insert(page, Page { used: now, written: now, data });
        }
        let new = || Page { used: now, written: now, data: Box::new([0; PAGE]) };
        let known = self.pages.entry(page).or_insert_with(new);
        self.order.remove(&known.used);
        known.used = now;
        self.order.insert(now, page);
        Ok(&known.data)
    }

    /// Writes to the copy of a page, if there is one.
    fn write(&mut self, page: u64, inside: Range<usize>, data: &[u8]) {
        self.now = self.now.saturating_add(1);
        if let Some(known) = self.pages.get_mut(&page)
            && let Some(to) = known.data.get_mut(inside)
        {
            to.copy_from_slice(data);
            known.written = self.now;
        }
    }

    fn forget(&mut self, page: u64) {
        if let Some(known) = self.pages.remove(&page) {
            self.order.remove(&known.used);
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // Nothing under this lock panics half-way through a change.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pages of a range: number, bytes inside the page, bytes of the whole.
fn pieces(address: u64, length: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0usize;
    std::iter::from_fn(move || {
        let at = address.checked_add(done as u64)?;
        let start = usize::try_from(at % PAGE_SIZE).ok()?;
        let size = length.checked_sub(done).filter(|left| *left > 0)?.min(PAGE - start);
        let part = done..done + size;
        done += size;
        Some((at / PAGE_SIZE, start..start + size, part))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

    use std::cell::{Cell, RefCell};
    use std::convert::Infallible;

    use super::*;

    /// A device that counts what is read of it.
    struct Device {
        bytes: RefCell<Vec<u8>>,
        fetched: Cell<usize>,
    }

    impl Device {
        fn new(pages: usize) -> Self {
            let bytes = (0..pages * PAGE).map(|at| (at / 8) as u8 ^ (at / PAGE) as u8).collect();
            Self { bytes: RefCell::new(bytes), fetched: Cell::new(0) }
        }

        fn read(&self, cache: &TableCache, address: usize, size: usize) -> Vec<u8> {
            let mut data = vec![0; size];
            let fetch = |at: u64, page: &mut [u8; PAGE]| {
                self.fetched.set(self.fetched.get() + 1);
                page.copy_from_slice(&self.bytes.borrow()[at as usize..at as usize + PAGE]);
                Ok::<_, Infallible>(())
            };
            cache.read(address as u64, &mut data, fetch).unwrap();
            data
        }

        fn write(&self, cache: &TableCache, address: usize, data: &[u8]) {
            let store = |at: u64, part: &[u8]| {
                self.bytes.borrow_mut()[at as usize..at as usize + part.len()].copy_from_slice(part);
                Ok::<_, Infallible>(())
            };
            cache.write(address as u64, data, store).unwrap();
        }

        fn now(&self, address: usize, size: usize) -> Vec<u8> {
            self.bytes.borrow()[address..address + size].to_vec()
        }
    }

    #[test]
    fn page_is_read_from_the_device_once() {
        let (device, cache) = (Device::new(4), TableCache::new(1 << 20));
        for at in [0, 8, 4088, 100] {
            assert_eq!(device.read(&cache, at, 8), device.now(at, 8));
        }
        assert_eq!(device.fetched.get(), 1);
        assert_eq!(device.read(&cache, 4000, 8392), device.now(4000, 8392));
        assert_eq!(device.fetched.get(), 4);
    }

    #[test]
    fn write_reaches_the_device_and_every_copy() {
        let (device, cache) = (Device::new(4), TableCache::new(1 << 20));
        device.read(&cache, 0, 8192);
        let data: Vec<u8> = (0..200).map(|byte| byte ^ 0xa5).collect();

        device.write(&cache, 4000, &data);
        device.write(&cache, 12_200, &data[..80]);

        assert_eq!(device.now(4000, 200), data);
        assert_eq!(device.read(&cache, 4000, 200), data);
        assert_eq!(device.read(&cache, 12_200, 80), data[..80]);
        assert_eq!(device.fetched.get(), 3, "a page that nobody read is not fetched for a write");
    }

    #[test]
    fn version_changes_with_every_write_and_every_fetch() {
        let (device, cache) = (Device::new(64), TableCache::new(16 * PAGE));
        assert_eq!(cache.version(0, 8), None);
        device.read(&cache, 0, 8);
        let first = cache.version(8, 8).unwrap();
        device.read(&cache, 4000, 8);
        assert_eq!(cache.version(0, 8), Some(first), "reading changes nothing");

        device.write(&cache, 16, &[1]);
        let second = cache.version(0, 8).unwrap();
        // Another page of the same shard takes its place.
        device.read(&cache, 16 * PAGE, 8);
        assert_eq!(cache.version(0, 8), None);
        device.read(&cache, 0, 8);
        let third = cache.version(0, 8).unwrap();

        assert_eq!(cache.version(4090, 8), None, "two pages");
        assert!(first != second && second != third && first != third);
        cache.clear();
        assert_eq!(cache.version(0, 8), None);
        device.read(&cache, 0, 8);
        assert!(![first, second, third].contains(&cache.version(0, 8).unwrap()));
    }

    #[test]
    fn least_recently_used_page_goes_when_there_is_no_room() {
        // Pages of one shard; room for two of them.
        let (device, cache) = (Device::new(64), TableCache::new(2 * 16 * PAGE));
        let page = |n: usize| n * 16 * PAGE;
        device.read(&cache, page(0), 8);
        device.read(&cache, page(1), 8);
        device.read(&cache, page(0), 8);
        device.read(&cache, page(2), 8);
        assert_eq!((device.fetched.get(), cache.len()), (3, 2));

        device.read(&cache, page(0), 8);
        assert_eq!(device.fetched.get(), 3);
        device.read(&cache, page(1), 8);
        assert_eq!((device.fetched.get(), cache.len()), (4, 2));
    }

    #[test]
    fn failed_fetch_and_failed_store_leave_nothing_behind() {
        let (device, cache) = (Device::new(1), TableCache::new(1 << 20));
        let mut data = [0; 8];
        assert_eq!(cache.read(0, &mut data, |_, _| Err("gone")), Err("gone"));
        assert_eq!(cache.len(), 0);
        device.read(&cache, 0, 8);
        assert_eq!(cache.write(0, &[1; 8], |_, _| Err("gone")), Err("gone"));
        assert_eq!(cache.len(), 0);
        cache.clear();
        assert_eq!(device.read(&cache, 0, 8), device.now(0, 8));
    }
}
