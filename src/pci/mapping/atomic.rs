//! Atomic read-modify-write of words in memory that others access too, guests' processors among them.

#![allow(unsafe_code, reason = "atomics in memory shared with other processes have no safe form")]

use super::error::MemoryError;
use super::raw::Mapping;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

impl Mapping {
    /// Replaces a little-endian word by what `change` makes of it, in one step for everybody else; `None`
    /// leaves it. Returns the word before. `change` may be called several times.
    ///
    /// # Errors
    /// The word leaves the mapping or lies at no multiple of its size, or the mapping is read-only.
    pub fn update_u32(
        &self,
        offset: u64,
        mut change: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, MemoryError> {
        let place = self.writable_place(offset, size_of::<u32>())?.cast::<AtomicU32>();
        if !place.is_aligned() {
            return Err(MemoryError::Unaligned { offset });
        }
        // SAFETY: the word lies inside the mapping, which `self` keeps; it is aligned, and everybody accesses
        // it by copies or atomics.
        let word = unsafe { place.as_ref() };
        let change = |word: u32| change(u32::from_le(word)).map(u32::to_le);
        let (Ok(before) | Err(before)) = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        Ok(u32::from_le(before))
    }

    /// The same for a double word.
    ///
    /// # Errors
    /// As [`Mapping::update_u32`].
    pub fn update_u64(
        &self,
        offset: u64,
        mut change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, MemoryError> {
        let place = self.writable_place(offset, size_of::<u64>())?.cast::<AtomicU64>();
        if !place.is_aligned() {
            return Err(MemoryError::Unaligned { offset });
        }
        // SAFETY: as above.
        let word = unsafe { place.as_ref() };
        let change = |word: u64| change(u64::from_le(word)).map(u64::to_le);
        let (Ok(before) | Err(before)) = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        Ok(u64::from_le(before))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::{Access, create_memory_file};
    use super::*;

    fn mapping(access: Access) -> Mapping {
        let file = create_memory_file(c"atomic", 0x1000).unwrap();
        Mapping::of_file(file.as_fd(), 0, 0x1000, access).unwrap()
    }

    #[test]
    fn no_step_of_many_threads_is_lost() {
        let memory = mapping(Access::ReadWrite);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        memory.update_u32(8, |word| Some(word + 1)).unwrap();
                        memory.update_u64(16, |word| Some(word + (1 << 32))).unwrap();
                    }
                });
            }
        });
        assert_eq!(memory.read_u32(8), Ok(40_000));
        assert_eq!(memory.read_u64(16), Ok(40_000 << 32));
    }

    #[test]
    fn the_word_before_is_returned_and_may_stay() {
        let memory = mapping(Access::ReadWrite);
        memory.write_u32(4, 7).unwrap();
        assert_eq!(memory.update_u32(4, |word| (word == 8).then_some(9)), Ok(7));
        assert_eq!(memory.update_u32(4, |word| (word == 7).then_some(9)), Ok(7));
        assert_eq!(memory.read_u32(4), Ok(9));
    }

    #[test]
    fn what_is_no_writable_word_is_refused() {
        let memory = mapping(Access::ReadWrite);
        let outside = MemoryError::OutOfRange { offset: 0xffe, size: 4, limit: 0x1000 };
        assert_eq!(memory.update_u32(0xffe, Some), Err(outside));
        assert_eq!(memory.update_u32(2, Some), Err(MemoryError::Unaligned { offset: 2 }));
        assert_eq!(memory.update_u64(4, Some), Err(MemoryError::Unaligned { offset: 4 }));
        let memory = mapping(Access::ReadOnly);
        assert_eq!(memory.update_u32(0, Some), Err(MemoryError::ReadOnly { offset: 0 }));
    }
}
