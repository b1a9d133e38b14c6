//! Translations that the MMU remembers, and that stay until the driver flushes them, whatever the page tables
//! say by then.
//!
//! Each page directory has two buffers, as hardware has: one at the hub for the host unit, one for engines. A
//! buffer is direct-mapped and of fixed size, so a translation may also leave to make room. Only translations
//! are kept, never their absence.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::chip::PhysicalAddress;
use crate::chip::gf100::mmu::Pte;

/// Small pages that a buffer remembers.
const SMALL_SLOTS: usize = 512;

/// Large pages that a buffer remembers.
const LARGE_SLOTS: usize = 128;

/// A page as the tables described it when they were last walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// Its first virtual address.
    pub(super) va: u64,
    /// log2 of its bytes.
    pub(super) shift: u8,
    /// Its entry.
    pub(super) pte: Pte,
}

/// One buffer.
#[derive(Debug)]
struct Slots {
    small: Vec<Option<Page>>,
    large: Vec<Option<Page>>,
    /// log2 of the large pages in `large`.
    large_shift: u8,
}

impl Slots {
    fn new() -> Self {
        Self { small: vec![None; SMALL_SLOTS], large: vec![None; LARGE_SLOTS], large_shift: 0 }
    }

    fn clear(&mut self) {
        self.small.fill(None);
        self.large.fill(None);
    }

    fn lookup(&self, va: u64) -> Option<Page> {
        let hit = |page: &Page| va >> page.shift == page.va >> page.shift;
        let small = slot(va, crate::chip::gf100::mmu::SMALL_PAGE_SHIFT, SMALL_SLOTS);
        let small = self.small.get(small).copied().flatten().filter(hit);
        small.or_else(|| {
            self.large.get(slot(va, self.large_shift, LARGE_SLOTS)).copied().flatten().filter(hit)
        })
    }

    fn insert(&mut self, page: Page) {
        let index = if page.shift == crate::chip::gf100::mmu::SMALL_PAGE_SHIFT {
            self.small.get_mut(slot(page.va, page.shift, SMALL_SLOTS))
        } else {
            self.large_shift = page.shift;
            self.large.get_mut(slot(page.va, page.shift, LARGE_SLOTS))
        };
        if let Some(index) = index {
            *index = Some(page);
        }
    }
}

/// CAST: the remainder is below `slots`.
fn slot(va: u64, shift: u8, slots: usize) -> usize {
    usize::try_from((va >> shift) % (slots as u64)).unwrap_or(0)
}

/// Which buffer an access looks in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    /// The host unit's, at the hub.
    Hub,
    /// The engines'.
    Engines,
}

/// The remembered translations of one page directory.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) directory: PhysicalAddress,
    hub: Mutex<Slots>,
    engines: Mutex<Slots>,
}

impl Space {
    pub(super) fn new(directory: PhysicalAddress) -> Self {
        Self { directory, hub: Mutex::new(Slots::new()), engines: Mutex::new(Slots::new()) }
    }

    fn slots(&self, buffer: Buffer) -> MutexGuard<'_, Slots> {
        let slots = match buffer {
            Buffer::Hub => &self.hub,
            Buffer::Engines => &self.engines,
        };
        slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lookup(&self, buffer: Buffer, va: u64) -> Option<Page> {
        self.slots(buffer).lookup(va)
    }

    pub(super) fn insert(&self, buffer: Buffer, page: Page) {
        self.slots(buffer).insert(page);
    }

    pub(super) fn clear(&self, hub_only: bool) {
        self.slots(Buffer::Hub).clear();
        if !hub_only {
            self.slots(Buffer::Engines).clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::Aperture;

    fn page(va: u64, shift: u8, address: u64) -> Page {
        let target = PhysicalAddress { aperture: Aperture::Vram, address };
        Page { va, shift, pte: Pte { target, read_only: false, privileged: false, kind: 0 } }
    }

    #[test]
    fn pages_are_found_by_any_address_inside() {
        let space = Space::new(PhysicalAddress { aperture: Aperture::Vram, address: 0 });
        space.insert(Buffer::Engines, page(0x5000, 12, 0x1000));
        space.insert(Buffer::Engines, page(0x10_0000, 17, 0x20_0000));

        let found = |va| space.lookup(Buffer::Engines, va).map(|page| page.pte.target.address);
        assert_eq!(found(0x5fff), Some(0x1000));
        assert_eq!(found(0x11_ffff), Some(0x20_0000));
        assert_eq!(found(0x6000), None);
        assert_eq!(found(0x12_0000), None);
        assert_eq!(space.lookup(Buffer::Hub, 0x5000), None);
    }

    #[test]
    fn clearing_the_hub_keeps_the_engines() {
        let space = Space::new(PhysicalAddress { aperture: Aperture::Vram, address: 0 });
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
    fn a_page_in_the_same_slot_takes_it() {
        let space = Space::new(PhysicalAddress { aperture: Aperture::Vram, address: 0 });
        let other = 0x5000 + (SMALL_SLOTS as u64) * 4096;
        space.insert(Buffer::Hub, page(0x5000, 12, 0x1000));
        space.insert(Buffer::Hub, page(other, 12, 0x2000));
        assert!(space.lookup(Buffer::Hub, 0x5000).is_none());
        assert_eq!(space.lookup(Buffer::Hub, other).map(|page| page.pte.target.address), Some(0x2000));
    }
}
