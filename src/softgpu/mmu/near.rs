//! Translations that one worker has at hand, beside the buffer of its address space, which all share: to look
//! there takes no lock. They go when that buffer is flushed, before any access after it.

use super::tlb::Page;

/// log2 of the bytes that a place is for.
const GRANULE_SHIFT: u8 = 12;

/// Places; a power of two.
const PLACES: usize = 64;

/// A worker's translations. They are of one address space at a time.
#[derive(Debug)]
pub(crate) struct Near {
    /// The age of the space that they are of; 0 for none.
    age: u64,
    /// Each with the number of the granule that it was looked up for.
    places: [Option<(u64, Page)>; PLACES],
}

impl Default for Near {
    fn default() -> Self {
        Self { age: 0, places: [None; PLACES] }
    }
}

/// The place of a granule: upper bits are folded in, so that arrays at round distances do not meet.
fn place(granule: u64) -> usize {
    let folded = granule ^ (granule >> 6) ^ (granule >> 12) ^ (granule >> 18) ^ (granule >> 24);
    usize::try_from(folded & (PLACES as u64 - 1)).unwrap_or(0)
}

impl Near {
    /// The page of an address, if it is at hand. `age` is that of the space, which is in use.
    #[inline]
    pub(crate) fn lookup(&mut self, age: u64, va: u64) -> Option<Page> {
        if self.age != age {
            *self = Self { age, ..Self::default() };
            return None;
        }
        let granule = va >> GRANULE_SHIFT;
        let (known, page) = (*self.places.get(place(granule))?)?;
        (known == granule).then_some(page)
    }

    /// Keeps a page that was found for an address, as long as the space has the age of the look-up before.
    pub(crate) fn insert(&mut self, va: u64, page: Page) {
        let granule = va >> GRANULE_SHIFT;
        if let Some(place) = self.places.get_mut(place(granule)) {
            *place = Some((granule, page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::{Aperture, PhysicalAddress};

    fn page(va: u64, shift: u8, address: u64) -> Page {
        let target = PhysicalAddress { aperture: Aperture::Vram, address };
        Page { va, shift, target, read_only: false, privileged: false, kind: 0 }
    }

    #[test]
    fn a_page_is_found_where_it_was_looked_up() {
        let mut near = Near::default();
        assert_eq!(near.lookup(7, 0x20_1234), None);
        near.insert(0x20_1234, page(0x20_0000, 21, 0x1000_0000));
        assert_eq!(near.lookup(7, 0x20_1000).map(|page| page.va), Some(0x20_0000));
        // The rest of a large page was not looked up.
        assert_eq!(near.lookup(7, 0x20_2000), None);
        assert_eq!(near.lookup(7, 0x1234), None);
    }

    #[test]
    fn nothing_is_left_after_a_flush_or_in_another_space() {
        let mut near = Near::default();
        for age in [1, 2, 1] {
            assert_eq!(near.lookup(age, 0x5000), None);
            near.insert(0x5000, page(0x5000, 12, 0x1000));
            assert!(near.lookup(age, 0x5fff).is_some());
        }
    }

    #[test]
    fn granules_that_share_a_place_replace_each_other() {
        let mut near = Near::default();
        assert_eq!(near.lookup(1, 0), None);
        for number in 0..1000_u64 {
            near.insert(number << 12, page(number << 12, 12, number << 20));
            assert_eq!(near.lookup(1, number << 12).map(|page| page.target.address), Some(number << 20));
        }
        let left = (0..1000_u64).filter(|number| near.lookup(1, number << 12).is_some()).count();
        assert_eq!(left, PLACES);
    }
}
