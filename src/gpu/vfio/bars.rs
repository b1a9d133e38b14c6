//! A card's base address registers, mapped: every access is one of the card's, of the width that was asked
//! for.

use std::os::fd::BorrowedFd;

use gpuvmk_pci::mapping::{Access, MapError, Mapping, MemoryError};

/// A mapped BAR.
#[derive(Debug)]
pub(super) struct Bar {
    mapping: Mapping,
    /// The widest access that the card takes there, in bytes.
    widest: usize,
}

impl Bar {
    /// Maps `size` bytes at `offset` of the device's file. `widest`: 4 for registers, 8 for windows onto
    /// memory.
    pub(super) fn map(fd: BorrowedFd<'_>, offset: u64, size: u64, widest: usize) -> Result<Self, MapError> {
        let mapping = Mapping::of_device(fd, offset, size, Access::ReadWrite)?;
        Ok(Self { mapping, widest })
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), MemoryError> {
        for (at, piece) in pieces(offset, data.len(), self.widest) {
            // In range: the pieces are those of `data`.
            let Some(part) = data.get_mut(piece) else { continue };
            self.mapping.read(at, part)?;
        }
        Ok(())
    }

    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        for (at, piece) in pieces(offset, data.len(), self.widest) {
            let Some(part) = data.get(piece) else { continue };
            self.mapping.write(at, part)?;
        }
        Ok(())
    }
}

/// An access as naturally aligned ones of at most `widest` bytes, lowest first: where, and which bytes.
fn pieces(offset: u64, size: usize, widest: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done: usize = 0;
    std::iter::from_fn(move || {
        let left = size.checked_sub(done).filter(|left| *left > 0)?;
        let at = offset.checked_add(done as u64)?;
        let aligned = 1usize << at.trailing_zeros().min(3);
        let fits = 1usize << left.ilog2().min(3);
        let length = aligned.min(fits).min(widest);
        let piece = done..done.checked_add(length)?;
        done = piece.end;
        Some((at, piece))
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use gpuvmk_pci::mapping::create_memory_file;

    #[test]
    fn accesses_are_aligned_and_not_wider_than_the_card_takes() {
        let lengths = |offset, size, widest| {
            pieces(offset, size, widest).map(|(at, piece)| (at, piece.len())).collect::<Vec<_>>()
        };
        assert_eq!(lengths(0, 4, 4), [(0, 4)]);
        assert_eq!(lengths(8, 8, 4), [(8, 4), (12, 4)]);
        assert_eq!(lengths(8, 8, 8), [(8, 8)]);
        assert_eq!(lengths(3, 4, 4), [(3, 1), (4, 2), (6, 1)]);
        assert_eq!(lengths(0, 0, 4), []);
    }

    #[test]
    fn access_behind_the_end_is_refused() {
        let file = create_memory_file(c"bar", 4096).unwrap();
        let bar = Bar::map(file.as_fd(), 0, 4096, 4).unwrap();
        bar.write(4092, &[1, 2, 3, 4]).unwrap();
        let mut word = [0; 4];
        bar.read(4092, &mut word).unwrap();
        assert_eq!(word, [1, 2, 3, 4]);
        assert!(bar.read(4093, &mut word).is_err());
        assert!(bar.write(u64::MAX, &word).is_err());
    }
}
