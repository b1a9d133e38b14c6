//! Guest memory whose physical address is known, for a driver that lives in user space: pages of 2 MiB that
//! the kernel neither moves nor takes away.
#![allow(
    unsafe_code,
    reason = "huge pages and their volatile accesses have no safe face in the standard library"
)]

use std::fs::{self, File};
use std::io::{Error, Read, Result, Seek, SeekFrom};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;
const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Mapped huge pages, of which any thread may load and store words.
#[derive(Debug)]
pub struct Pool {
    start: NonNull<u8>,
    physical: Vec<u64>,
}

// SAFETY: the mapping belongs to this value, and nothing in it is bound to a thread.
unsafe impl Send for Pool {}
// SAFETY: accesses are volatile and through shared references only; no reference into the memory is ever
// made. Races between them are what some attacks want: each sees some value that was stored.
unsafe impl Sync for Pool {}

/// Huge pages, handed out from the bottom, each piece within one of them.
#[derive(Debug)]
pub struct DmaMemory {
    pool: Arc<Pool>,
    next: usize,
}

impl Deref for DmaMemory {
    type Target = Pool;
    fn deref(&self) -> &Pool {
        &self.pool
    }
}

/// A piece of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Position in the pool.
    at: usize,
    /// Where the GPU finds it.
    pub physical: u64,
    /// Bytes.
    pub size: usize,
}

impl DmaMemory {
    /// Takes `pages` huge pages from the kernel.
    pub fn new(pages: usize) -> Result<Self> {
        let had: usize = fs::read_to_string(POOL)?.trim().parse().map_err(Error::other)?;
        fs::write(POOL, (had + pages).to_string())?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_POPULATE;
        let (size, protection) = (pages * HUGE, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice overlaps nothing of this
        // program.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let start =
            NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::other("mmap returned address 0"))?;
        let mut pool = Pool { start, physical: Vec::new() };
        for page in 0..pages {
            pool.physical.push(physical(start.as_ptr().addr() + page * HUGE)?);
        }
        Ok(Self { pool: Arc::new(pool), next: 0 })
    }

    /// The memory for another thread.
    pub fn shared(&self) -> Arc<Pool> {
        self.pool.clone()
    }

    /// A zeroed piece at a multiple of `align`, both at most a huge page.
    pub fn take(&mut self, size: usize, align: usize) -> Result<Piece> {
        let mut at = self.next.next_multiple_of(align);
        if at / HUGE != (at + size.max(1) - 1) / HUGE {
            at = at.next_multiple_of(HUGE);
        }
        let place = self.physical.get(at / HUGE).filter(|_| size <= HUGE);
        let Some(page) = place else {
            return Err(Error::other(format!(
                "no room for {size} bytes in {} huge pages",
                self.physical.len()
            )));
        };
        let piece = Piece { at, physical: page + (at % HUGE) as u64, size };
        self.next = at + size;
        self.fill(piece, 0);
        Ok(piece)
    }

    /// Takes everything back that was handed out. Pieces from before must not be used any more.
    pub fn start_again(&mut self) {
        self.next = 0;
    }
}

impl Pool {
    /// Sets every word of a piece.
    pub fn fill(&self, piece: Piece, value: u32) {
        for offset in (0..piece.size).step_by(4) {
            self.store32(piece, offset, value);
        }
    }

    /// A word; zero beyond the piece.
    pub fn load32(&self, piece: Piece, offset: usize) -> u32 {
        match self.at(piece, offset, 4) {
            // SAFETY: the word lies in the mapping and is aligned (`at`).
            Some(place) => unsafe { place.cast::<u32>().read_volatile() },
            None => 0,
        }
    }

    /// Stores a word; nothing beyond the piece.
    pub fn store32(&self, piece: Piece, offset: usize, value: u32) {
        if let Some(place) = self.at(piece, offset, 4) {
            // SAFETY: the word lies in the mapping and is aligned (`at`).
            unsafe { place.cast::<u32>().write_volatile(value) };
        }
    }

    /// Stores 8 bytes at once; nothing beyond the piece.
    pub fn store64(&self, piece: Piece, offset: usize, value: u64) {
        if let Some(place) = self.at(piece, offset, 8) {
            // SAFETY: the word lies in the mapping and is aligned (`at`).
            unsafe { place.cast::<u64>().write_volatile(value) };
        }
    }

    fn at(&self, piece: Piece, offset: usize, length: usize) -> Option<NonNull<u8>> {
        let inside = offset.checked_add(length)? <= piece.size && offset.is_multiple_of(length);
        let at = piece.at.checked_add(offset)?;
        let mapped = at.checked_add(length)? <= self.physical.len() * HUGE;
        // SAFETY: the offset lies in the mapping.
        (inside && mapped).then(|| unsafe { self.start.add(at) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it exists.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.physical.len() * HUGE) };
    }
}

/// The physical address behind a virtual one that is mapped.
fn physical(address: usize) -> Result<u64> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let mut map = File::open("/proc/self/pagemap")?;
    map.seek(SeekFrom::Start((address / 4096 * 8) as u64))?;
    let mut entry = [0; 8];
    map.read_exact(&mut entry)?;
    let entry = u64::from_le_bytes(entry);
    let frame = entry & FRAME;
    if entry & PRESENT == 0 || frame == 0 {
        return Err(Error::other("a huge page has no physical address that this process may know"));
    }
    Ok(frame * 4096)
}
