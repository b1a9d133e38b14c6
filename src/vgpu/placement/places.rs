//! Which pages of VRAM have their home in the memory that BAR3 is, and where. Pure bookkeeping.
//!
//! A page has one home. A page of BAR3 that shows VRAM which has its home elsewhere is a copy of it
//! ([`Place::is_copy`]): that is so of pages that hardware reaches by their address in VRAM (USERD).

use std::ops::Range;

use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_ordered::OrderedMap;

/// Where in BAR3 a page of VRAM is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset in BAR3.
    pub offset: u64,
    /// The home is in VRAM, and here is what it was when BAR3 began to show it.
    pub is_copy: bool,
}

/// A part of a range of VRAM whose homes follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Addresses in VRAM.
    pub vram: Range<u64>,
    /// Offset in BAR3 of the home of the first byte; `None`: it is in VRAM.
    pub home: Option<u64>,
}

/// All pages, by address in VRAM and by offset in BAR3.
#[derive(Debug, Default)]
pub struct Places {
    by_vram: OrderedMap<u64, Place>,
    by_offset: OrderedMap<u64, u64>,
}

impl Places {
    /// Where the page of VRAM is in BAR3.
    pub fn of_vram(&self, page: u64) -> Option<Place> {
        self.by_vram.get(&page).copied()
    }

    /// The pages of BAR3 in a range that show VRAM: offset and address.
    pub fn shown_in(&self, offsets: Range<u64>) -> Vec<(u64, u64)> {
        self.by_offset.range(offsets).map(|(offset, page)| (*offset, *page)).collect()
    }

    /// The pages that have their home in BAR3: address and offset.
    pub fn homes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.by_vram.iter().filter(|(_, place)| !place.is_copy).map(|(page, place)| (*page, place.offset))
    }

    /// A page of VRAM is shown from now on.
    pub fn insert(&mut self, page: u64, place: Place) {
        self.by_vram.insert(page, place);
        self.by_offset.insert(place.offset, page);
    }

    /// A page of VRAM is not shown any more.
    pub fn remove(&mut self, page: u64) {
        if let Some(place) = self.by_vram.remove(&page) {
            self.by_offset.remove(&place.offset);
        }
    }

    /// Cuts a range of whole pages of VRAM where homes do not follow each other.
    pub fn parts(&self, vram: Range<u64>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut at = vram.start;
        let homes = self.by_vram.range(vram.clone()).filter(|(_, place)| !place.is_copy);
        for (page, Place { offset, .. }) in homes {
            if at < *page {
                parts.push(Part { vram: at..*page, home: None });
            }
            at = page.saturating_add(PAGE_SIZE);
            match parts.last_mut() {
                Some(Part { vram, home: Some(home) })
                    if vram.end == *page && home.saturating_add(vram.end - vram.start) == *offset =>
                {
                    vram.end = at;
                }
                _ => parts.push(Part { vram: *page..at, home: Some(*offset) }),
            }
        }
        if at < vram.end {
            parts.push(Part { vram: at..vram.end, home: None });
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_SIZE;

    fn home(offset: u64) -> Place {
        Place { offset, is_copy: false }
    }

    fn part(vram: Range<u64>, home: Option<u64>) -> Part {
        Part { vram, home }
    }

    #[test]
    fn range_is_cut_where_homes_do_not_follow_each_other() {
        let mut places = Places::default();
        places.insert(2 * PAGE, home(8 * PAGE));
        places.insert(3 * PAGE, home(9 * PAGE));
        places.insert(4 * PAGE, home(5 * PAGE));
        places.insert(6 * PAGE, Place { offset: 0, is_copy: true });

        assert_eq!(places.parts(0..PAGE), [part(0..PAGE, None)]);
        let all = [
            part(0..2 * PAGE, None),
            part(2 * PAGE..4 * PAGE, Some(8 * PAGE)),
            part(4 * PAGE..5 * PAGE, Some(5 * PAGE)),
            part(5 * PAGE..8 * PAGE, None),
        ];
        assert_eq!(places.parts(0..8 * PAGE), all);
        assert_eq!(places.parts(3 * PAGE..4 * PAGE), [part(3 * PAGE..4 * PAGE, Some(9 * PAGE))]);
    }

    #[test]
    fn page_that_is_not_shown_any_more_is_in_neither_order() {
        let mut places = Places::default();
        places.insert(PAGE, home(0));
        places.insert(5 * PAGE, home(PAGE));
        places.remove(PAGE);

        assert_eq!((places.of_vram(PAGE), places.of_vram(5 * PAGE)), (None, Some(home(PAGE))));
        assert_eq!(places.shown_in(0..2 * PAGE), [(PAGE, 5 * PAGE)]);
        assert_eq!(places.homes().collect::<Vec<_>>(), [(5 * PAGE, PAGE)]);
    }
}
