//! The content of a block's pages, and how they make runs and pieces.

use gpuvmk_chip::addr::PAGE_SIZE;

/// Pages of a block.
pub(super) const PAGES: usize = 512;

/// The pages of a block.
pub(super) type Pages = [Page; PAGES];

/// The part of a page's content that a mapping depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Page {
    /// To be trapped.
    #[default]
    Trapped,
    /// That place of a file, by the number of its descriptor.
    File { fd: i32, offset: u64, writable: bool },
    /// That bus address.
    Bus { address: u64, writable: bool },
}

impl Page {
    /// Whether a slot of stores or of loads alone shows it; `None` if none does.
    pub(super) fn writable(self) -> Option<bool> {
        match self {
            Self::Trapped => None,
            Self::File { writable, .. } | Self::Bus { writable, .. } => Some(writable),
        }
    }

    /// True when `next` is the page behind this one in the same memory.
    fn goes_on(self, next: Self) -> bool {
        match (self, next) {
            (Self::File { fd, offset, writable }, next) => {
                next == Self::File { fd, offset: offset.wrapping_add(PAGE_SIZE), writable }
            }
            (Self::Bus { address, writable }, next) => {
                next == Self::Bus { address: address.wrapping_add(PAGE_SIZE), writable }
            }
            (Self::Trapped, _) => false,
        }
    }
}

/// Bytes of that many pages.
pub(super) fn bytes(pages: usize) -> u64 {
    (pages as u64).saturating_mul(PAGE_SIZE)
}

/// Where the piece of memory ends that begins at page `from`.
pub(super) fn piece_end(pages: &[Page], from: usize) -> usize {
    let goes_on = |pair: &[Page]| matches!(pair, [page, next] if page.goes_on(*next));
    let more = pages.get(from..).unwrap_or_default().windows(2).take_while(|pair| goes_on(pair)).count();
    from + more + 1
}

/// Pieces that the visible pages are made of.
pub(super) fn pieces_of(pages: &[Page]) -> usize {
    let (mut count, mut at) = (0, 0);
    while let Some(page) = pages.get(at) {
        if page.writable().is_some() {
            count += 1;
            at = piece_end(pages, at);
        } else {
            at += 1;
        }
    }
    count
}

/// Runs of visible pages of one kind.
pub(super) fn runs_of(pages: &[Page]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut kind = None;
    for (at, page) in pages.iter().enumerate() {
        let now = page.writable();
        match runs.last_mut() {
            Some((_, end)) if now.is_some() && now == kind => *end = at + 1,
            _ if now.is_some() => runs.push((at, at + 1)),
            _ => {}
        }
        kind = now;
    }
    runs
}

/// Copies a part of the pages.
pub(super) fn copy_pages(to: &mut Pages, from: &Pages, first: usize, end: usize) {
    if let (Some(to), Some(from)) = (to.get_mut(first..end), from.get(first..end)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn file(offset: u64) -> Page {
        Page::File { fd: 3, offset, writable: true }
    }

    #[test]
    fn pieces_are_memory_behind_each_other() {
        let pages = [file(0x1000), file(0x2000), file(0x8000), Page::Trapped, file(0x9000)];
        assert_eq!(pieces_of(&pages), 3);
        assert_eq!((piece_end(&pages, 0), piece_end(&pages, 1), piece_end(&pages, 2)), (2, 2, 3));
        let other = Page::File { fd: 4, offset: 0x2000, writable: true };
        assert_eq!(pieces_of(&[file(0x1000), other]), 2);
        let bus = |address| Page::Bus { address, writable: false };
        assert_eq!(pieces_of(&[bus(0), bus(0x1000), bus(0x3000)]), 2);
    }

    #[test]
    fn runs_are_pages_of_one_kind_whatever_their_memory() {
        let read_only = Page::File { fd: 3, offset: 0, writable: false };
        let pages = [Page::Trapped, file(0x5000), file(0), read_only, read_only, Page::Trapped, file(0)];
        assert_eq!(runs_of(&pages), [(1, 3), (3, 5), (6, 7)]);
        assert_eq!(runs_of(&[]), []);
    }
}
