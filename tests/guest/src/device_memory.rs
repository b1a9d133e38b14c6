//! A BAR of a PCI device, mapped through sysfs, and accesses to it of any width and alignment.
//!
//! Accesses are single instructions: the compiler neither joins, splits nor drops them, and they need not be
//! aligned. Several threads may use one mapping: what they reach is a device, not memory of this program.
#![allow(unsafe_code, reason = "memory-mapped registers have no safe face in the standard library")]

use std::arch::asm;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

/// A mapped BAR.
#[derive(Debug)]
pub struct DeviceMemory {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value, and nothing in it is bound to a thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: accesses are single instructions to a device; no reference into the mapping is ever made.
unsafe impl Sync for DeviceMemory {}

macro_rules! access {
    ($load:ident, $store:ident, $word:ty, $class:ident, $pattern:literal) => {
        /// Loads a word by one instruction.
        pub fn $load(&self, offset: usize) -> Result<$word> {
            let place = self.at(offset, size_of::<$word>())?;
            let value: $word;
            // SAFETY: all bytes lie in the mapping (`at`), which lives as long as `self`; a load from a
            // device touches no memory of this program.
            unsafe {
                asm!(concat!("mov {0", $pattern, "}, [{1}]"), out($class) value, in(reg) place.as_ptr(),
                     options(nostack, preserves_flags));
            }
            Ok(value)
        }

        /// Stores a word by one instruction.
        pub fn $store(&self, offset: usize, value: $word) -> Result<()> {
            let place = self.at(offset, size_of::<$word>())?;
            // SAFETY: as for the load.
            unsafe {
                asm!(concat!("mov [{0}], {1", $pattern, "}"), in(reg) place.as_ptr(), in($class) value,
                     options(nostack, preserves_flags));
            }
            Ok(())
        }
    };
}

impl DeviceMemory {
    /// Maps all of the sysfs file `path`, which is as large as its BAR.
    pub fn map(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let size = usize::try_from(file.metadata()?.len()).map_err(Error::other)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of this program.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::other("mmap returned address 0"))?;
        Ok(Self { start, size })
    }

    /// Bytes of the BAR.
    pub fn size(&self) -> usize {
        self.size
    }

    access!(load8, store8, u8, reg_byte, "");
    access!(load16, store16, u16, reg, ":x");
    access!(load32, store32, u32, reg, ":e");
    access!(load64, store64, u64, reg, ":r");

    fn at(&self, offset: usize, length: usize) -> Result<NonNull<u8>> {
        match offset.checked_add(length) {
            // SAFETY: `offset` is at most the mapping's size.
            Some(end) if end <= self.size => Ok(unsafe { self.start.add(offset) }),
            _ => Err(Error::other(format!("{length} bytes at {offset:#x} leave a BAR of {:#x}", self.size))),
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it exists.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn words_of_each_width_are_stored_and_loaded_at_any_alignment() {
        let mut file = tempfile();
        file.1.write_all(&[0; 4096]).unwrap();
        let memory = DeviceMemory::map(&file.0).unwrap();
        memory.store64(1, 0x8877_6655_4433_2211).unwrap();
        assert_eq!(memory.load8(1).unwrap(), 0x11);
        assert_eq!(memory.load16(2).unwrap(), 0x3322);
        assert_eq!(memory.load32(5).unwrap(), 0x8877_6655);
        assert_eq!(memory.load64(1).unwrap(), 0x8877_6655_4433_2211);
        memory.store8(3, 0xff).unwrap();
        memory.store16(4, 0xeeee).unwrap();
        memory.store32(6, 0xdddd_dddd).unwrap();
        assert_eq!(memory.load64(1).unwrap(), 0xdddd_ddee_eeff_2211 & !(0xff << 56) | 0xdd << 56);
        assert!(memory.load32(4093).is_err() && memory.store8(4096, 0).is_err());
        let _ = std::fs::remove_file(&file.0);
    }

    fn tempfile() -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("gpuvmk-bar-{}", std::process::id()));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        (path, file)
    }
}
