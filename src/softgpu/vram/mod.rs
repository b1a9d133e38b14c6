//! Video memory: banks, each an anonymous file of its own, mapped one behind the other.
//!
//! Whole banks can be given to another process, and nothing else can: a descriptor never covers memory of two
//! owners as long as owners get whole banks. For its next owner a bank becomes another file: whoever has the
//! old one keeps the old memory.

pub(crate) mod memory;
pub(crate) mod renewals;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use rustix::fs::{FallocateFlags, fallocate};

use gpuvmk_backend::VramPiece;
use gpuvmk_host::reaper;
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping, MemoryError, create_memory_file};

/// Smallest bank.
const MIN_BANK: u64 = 16 << 20;

/// Largest number of banks; larger memories have larger banks. It bounds descriptors and mappings of this
/// process. All banks fit into one message, of which Linux passes at most 253 descriptors.
const MAX_BANKS: u64 = 240;

/// The unit in which memory goes back to the system.
const PAGE: u64 = 4096;

/// Ranges with so many bytes in whole pages are zeroed by giving them back: fewer are written sooner.
const WORTH_GIVING_BACK: u64 = 64 << 10;

/// VRAM sizes are multiples of this: the chip reports them in this unit.
pub const VRAM_UNIT: u64 = 1 << 20;

/// Largest VRAM: the MMU's physical addresses have 40 bits.
pub const MAX_VRAM: u64 = 1 << 38;

/// Bytes of a bank of a GPU with `vram` bytes; the last one may be smaller. A power of two, so that the usual
/// sizes of partitions are made of whole banks.
pub const fn bank_size(vram: u64) -> u64 {
    let share = vram.div_ceil(MAX_BANKS).next_power_of_two();
    if share > MIN_BANK { share } else { MIN_BANK }
}

/// A file of zeros for a bank.
fn create_bank(number: usize, bytes: u64) -> io::Result<OwnedFd> {
    create_memory_file(&CString::new(format!("gpuvmk-vram-{number}"))?, bytes)
}

/// Video memory of a GPU.
#[derive(Debug)]
pub(crate) struct Vram {
    /// Files and sizes. What is mapped is changed before the file is: a bank that is renewed is nobody's
    /// meanwhile.
    banks: RwLock<Vec<(OwnedFd, u64)>>,
    bank_size: u64,
    pub(crate) memory: Mapping,
}

impl Vram {
    /// `size` zero bytes, a multiple of [`VRAM_UNIT`] up to [`MAX_VRAM`].
    pub(crate) fn new(size: u64) -> io::Result<Self> {
        if size == 0 || !size.is_multiple_of(VRAM_UNIT) || size > MAX_VRAM {
            let text = format!("VRAM of {size:#x} bytes: must be a multiple of 1 MiB up to {MAX_VRAM:#x}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let bank_size = bank_size(size);
        let mut banks = Vec::new();
        let mut left = size;
        while left > 0 {
            let bytes = left.min(bank_size);
            banks.push((create_bank(banks.len(), bytes)?, bytes));
            left -= bytes;
        }
        let pieces: Vec<_> =
            banks.iter().map(|(fd, size)| FilePiece { fd: fd.as_fd(), offset: 0, size: *size }).collect();
        let memory = Mapping::contiguous(&pieces, Access::ReadWrite).map_err(io::Error::other)?;
        drop(pieces);
        Ok(Self { banks: RwLock::new(banks), bank_size, memory })
    }

    fn banks(&self) -> RwLockReadGuard<'_, Vec<(OwnedFd, u64)>> {
        self.banks.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts other files in the place of the banks that make up `[offset, offset + size)`: zeros, which nobody
    /// else has. Who has the old files keeps them, and reaches nothing of this memory any more.
    pub(crate) fn renew(&self, offset: u64, size: u64) -> io::Result<()> {
        let end = self.whole_banks(offset, size)?;
        let sizes: Vec<u64> = self.banks().iter().map(|(_, bytes)| *bytes).collect();
        let mut start: u64 = 0;
        for (number, bytes) in sizes.into_iter().enumerate() {
            if (offset..end).contains(&start) {
                let fresh = create_bank(number, bytes)?;
                let piece = FilePiece { fd: fresh.as_fd(), offset: 0, size: bytes };
                let aside = self.memory.exchange(start, &piece).map_err(io::Error::other)?;
                let old = self.exchange_file(number, fresh);
                // To give thousands of pages back takes as long as all the rest several times over.
                reaper::give_up((aside, old));
            }
            start = start.saturating_add(bytes);
        }
        Ok(())
    }

    fn exchange_file(&self, number: usize, fresh: OwnedFd) -> Option<OwnedFd> {
        let mut banks = self.banks.write().unwrap_or_else(PoisonError::into_inner);
        banks.get_mut(number).map(|(bank, _)| std::mem::replace(bank, fresh))
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Makes a range zeros, and gives the memory behind it back to the system.
    pub(crate) fn zero(&self, offset: u64, size: u64) -> io::Result<()> {
        let end = offset.checked_add(size).filter(|end| *end <= self.size());
        let end = end.ok_or_else(|| {
            let text = format!("{size:#x} bytes at {offset:#x} are not VRAM, which has {:#x}", self.size());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let mut start: u64 = 0;
        for (fd, bytes) in self.banks().iter() {
            let (first, last) = (offset.max(start), end.min(start.saturating_add(*bytes)));
            if first < last {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(fd, how, first.saturating_sub(start), last.saturating_sub(first))?;
            }
            start = start.saturating_add(*bytes);
        }
        Ok(())
    }

    /// Makes a range zeros by whatever way is faster.
    pub(crate) fn clear(&self, offset: u64, size: u64) -> Result<(), MemoryError> {
        let limit = self.size();
        let end = offset.checked_add(size).filter(|end| *end <= limit);
        let end = end.ok_or(MemoryError::OutOfRange { offset, size, limit })?;
        let (first, last) = (offset.next_multiple_of(PAGE), end / PAGE * PAGE);
        let whole = last.saturating_sub(first);
        if whole < WORTH_GIVING_BACK || self.zero(first, whole).is_err() {
            return self.memory.fill(offset, size, 0);
        }
        self.memory.fill(offset, first - offset, 0)?;
        self.memory.fill(last, end - last, 0)
    }

    /// Tells which banks hold `[offset, offset + size)`.
    pub(crate) fn show(&self, offset: u64, size: u64, visit: &mut dyn FnMut(VramPiece<'_>)) {
        let (mut start, end) = (0, offset.saturating_add(size));
        for (fd, bytes) in self.banks().iter() {
            let (from, to) = (offset.max(start), end.min(start + bytes));
            if from < to {
                visit(VramPiece { start: from, size: to - from, fd: fd.as_fd(), offset: from - start });
            }
            start += bytes;
        }
    }

    /// The end of a range, which must be made of whole banks.
    fn whole_banks(&self, offset: u64, size: u64) -> io::Result<u64> {
        let refuse = || {
            let text = format!(
                "VRAM {offset:#x}+{size:#x} is not made of whole banks of {:#x} bytes",
                self.bank_size
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let end =
            offset.checked_add(size).filter(|end| *end <= self.size() && size > 0).ok_or_else(refuse)?;
        let whole = |edge: u64| edge.is_multiple_of(self.bank_size) || edge == self.size();
        if !whole(offset) || !whole(end) {
            return Err(refuse());
        }
        Ok(end)
    }

    /// Descriptors of the banks that make up `[offset, offset + size)`.
    pub(crate) fn share(&self, offset: u64, size: u64) -> io::Result<Vec<SharedMemory>> {
        let end = self.whole_banks(offset, size)?;
        let mut shared = Vec::new();
        let mut start = 0;
        for (fd, bytes) in self.banks().iter() {
            if (offset..end).contains(&start) {
                shared.push(SharedMemory { fd: fd.try_clone()?, offset: 0, size: *bytes });
            }
            start += bytes;
        }
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banks_read_as_one_memory_and_share_whole() {
        let vram = Vram::new(40 << 20).unwrap();
        let text = [0x5a; 64];
        vram.memory.write((16 << 20) - 32, &text).unwrap();

        let shared = vram.share(16 << 20, 24 << 20).unwrap();

        let sizes: Vec<_> = shared.iter().map(|bank| bank.size).collect();
        assert_eq!(sizes, [16 << 20, 8 << 20]);
        let bank = Mapping::of_file(shared[0].fd.as_fd(), 0, 16 << 20, Access::ReadOnly).unwrap();
        let mut bytes = [0; 33];
        bank.read(0, &mut bytes).unwrap();
        assert_eq!((bytes[31], bytes[32]), (0x5a, 0));
    }

    #[test]
    fn zeroed_range_is_zero_and_its_surroundings_are_not() {
        let vram = Vram::new(40 << 20).unwrap();
        vram.memory.fill(0, 40 << 20, 0x5a).unwrap();

        vram.zero(0x1800, 32 << 20).unwrap();

        let mut bytes = vec![0; 40 << 20];
        vram.memory.read(0, &mut bytes).unwrap();
        let end = 0x1800 + (32 << 20);
        assert!(bytes[..0x1800].iter().chain(&bytes[end..]).all(|&byte| byte == 0x5a));
        assert!(bytes[0x1800..end].iter().all(|&byte| byte == 0));
        assert!(vram.zero(40 << 20, 1).is_err());
    }

    #[test]
    fn cleared_range_is_zero_and_its_surroundings_are_not_whatever_its_size() {
        let vram = Vram::new(40 << 20).unwrap();
        for (offset, size) in [
            (5, 100),
            (0x1801, 0x1_0000),
            (0x1801, 0x2_0000),
            (0x1000, 0x1_0000),
            (15 << 20, 8 << 20),
            (9, 0),
        ] {
            vram.memory.fill(0, 40 << 20, 0x5a).unwrap();
            vram.clear(offset, size).unwrap();

            let mut bytes = vec![0; 40 << 20];
            vram.memory.read(0, &mut bytes).unwrap();
            let [start, end] = [offset, offset + size].map(|at| usize::try_from(at).unwrap());
            assert!(
                bytes[..start].iter().chain(&bytes[end..]).all(|&byte| byte == 0x5a),
                "{offset:#x}+{size:#x}"
            );
            assert!(bytes[start..end].iter().all(|&byte| byte == 0), "{offset:#x}+{size:#x}");
        }
        assert!(vram.clear(39 << 20, (1 << 20) + 1).is_err());
        assert!(vram.clear(u64::MAX, 2).is_err());
    }

    /// Who holds a bank's old file, or has mapped it, sees nothing of what is there later, and changes
    /// nothing.
    #[test]
    fn renewed_bank_is_zero_and_not_what_was_shared_before() {
        let vram = Vram::new(40 << 20).unwrap();
        vram.memory.fill(0, 40 << 20, 0x5a).unwrap();
        let old = vram.share(16 << 20, 16 << 20).unwrap();
        let kept = Mapping::of_file(old[0].fd.as_fd(), 0, 16 << 20, Access::ReadWrite).unwrap();

        vram.renew(16 << 20, 16 << 20).unwrap();

        let byte = |memory: &Mapping, at: u64| {
            let mut byte = [0];
            memory.read(at, &mut byte).unwrap();
            byte[0]
        };
        let edges = [(16 << 20) - 1, 16 << 20, (32 << 20) - 1, 32 << 20];
        assert_eq!(edges.map(|at| byte(&vram.memory, at)), [0x5a, 0, 0, 0x5a]);
        vram.memory.fill(16 << 20, 16 << 20, 0x11).unwrap();
        assert_eq!(byte(&kept, 0x1234), 0x5a);
        kept.fill(0, 16 << 20, 0x22).unwrap();
        assert_eq!(byte(&vram.memory, (16 << 20) + 0x1234), 0x11);
        let again = vram.share(16 << 20, 16 << 20).unwrap();
        let mapped = Mapping::of_file(again[0].fd.as_fd(), 0, 16 << 20, Access::ReadOnly).unwrap();
        assert_eq!(byte(&mapped, 0x1234), 0x11);
        // Zeroing reaches the new one.
        vram.zero(16 << 20, 16 << 20).unwrap();
        assert_eq!(
            (byte(&vram.memory, 20 << 20), byte(&mapped, 4 << 20), byte(&kept, 4 << 20)),
            (0, 0, 0x22)
        );
    }

    #[test]
    fn parts_of_banks_are_not_shared_and_not_renewed() {
        let vram = Vram::new(32 << 20).unwrap();
        for (offset, size) in [(0, 1 << 20), (4096, 16 << 20), (0, 0), (16 << 20, 32 << 20), (u64::MAX, 2)] {
            let error = vram.share(offset, size).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{offset:#x}+{size:#x}");
            assert!(vram.renew(offset, size).is_err());
        }
    }

    #[test]
    fn odd_sizes_are_refused() {
        for size in [0, 4096, (1 << 20) + 1, MAX_VRAM + VRAM_UNIT] {
            assert_eq!(Vram::new(size).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{size:#x}");
        }
    }

    #[test]
    fn number_of_banks_is_bounded() {
        for size in [1 << 20, 512 << 20, 4u64 << 30, (100u64 << 30) + VRAM_UNIT, MAX_VRAM] {
            assert!(size.div_ceil(bank_size(size)) <= MAX_BANKS);
            assert!(bank_size(size) >= MIN_BANK);
        }
    }
}
