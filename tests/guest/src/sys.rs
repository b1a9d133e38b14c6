//! System calls that the standard library does not offer, with safe faces.
#![allow(unsafe_code, reason = "raw Linux system calls: module loading, mounts, ioctls, memory mappings")]

use std::ffi::CString;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

fn check(result: libc::c_int) -> Result<()> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(Error::other)
}

/// Mounts a file system; those of the kernel have their kind as source.
pub fn mount(kind: &str, source: &str, place: &str) -> Result<()> {
    let (kind, source, place) = (c_string(kind)?, c_string(source)?, c_string(place)?);
    // SAFETY: all strings end in zero and live over the call; no data argument is passed.
    check(unsafe { libc::mount(source.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) })
}

/// Shows the folder `from` with all that is mounted below it at `place` too.
pub fn bind(from: &str, place: &str) -> Result<()> {
    let (from, place, none) = (c_string(from)?, c_string(place)?, std::ptr::null());
    let flags = libc::MS_BIND | libc::MS_REC;
    // SAFETY: both strings end in zero and live over the call; a bind has no kind and no data.
    check(unsafe { libc::mount(from.as_ptr(), place.as_ptr(), none, flags, none.cast()) })
}

/// Takes away what is mounted at `place`.
pub fn unmount(place: &str) -> Result<()> {
    let place = c_string(place)?;
    // SAFETY: the string ends in zero and lives over the call.
    check(unsafe { libc::umount2(place.as_ptr(), 0) })
}

/// Makes what is mounted at `place` the root of this process, and of all that it starts.
pub fn enter_root(place: &str) -> Result<()> {
    std::env::set_current_dir(place)?;
    let (here, root) = (c_string(".")?, c_string("/")?);
    let none = std::ptr::null();
    // SAFETY: both strings end in zero and live over the call; a move has no kind and no data.
    check(unsafe { libc::mount(here.as_ptr(), root.as_ptr(), none, libc::MS_MOVE, none.cast()) })?;
    std::os::unix::fs::chroot(".")?;
    std::env::set_current_dir("/")
}

/// Loads a kernel module from a file.
pub fn load_module(file: &File, options: &str) -> Result<()> {
    let options = c_string(options)?;
    // SAFETY: the descriptor is open, and the options end in zero and live over the call.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), options.as_ptr(), 0) };
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Removes a kernel module.
pub fn remove_module(name: &str) -> Result<()> {
    let name = c_string(name)?;
    // SAFETY: the name ends in zero and lives over the call.
    let result = unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) };
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Waits until a terminal has sent everything.
pub fn drain(terminal: &File) {
    // SAFETY: the descriptor is open. A failure (it is no terminal) leaves nothing to wait for.
    unsafe { libc::tcdrain(terminal.as_raw_fd()) };
}

/// Ends the machine: `true` resets it, `false` powers it off. Returns only if the kernel refuses.
pub fn end_machine(again: bool) -> Error {
    let command = if again { libc::RB_AUTOBOOT } else { libc::RB_POWER_OFF };
    // SAFETY: sync has no arguments.
    unsafe { libc::sync() };
    // SAFETY: reboot takes a plain number.
    unsafe { libc::reboot(command) };
    Error::last_os_error()
}

/// The time since boot, by the clock that the kernel's absolute time limits use.
pub fn monotonic() -> std::time::Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is a constant that every kernel has, and `now` is exclusively borrowed.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    std::time::Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Sets the machine's clock, in seconds since 1970.
pub fn set_clock(seconds: i64) -> Result<()> {
    let time = libc::timeval { tv_sec: seconds, tv_usec: 0 };
    // SAFETY: the time is borrowed over the call, and no time zone is passed.
    check(unsafe { libc::settimeofday(&raw const time, std::ptr::null()) })
}

/// A value that an ioctl may read and write as plain bytes.
///
/// # Safety
/// Every bit pattern is a valid value, and the layout is the kernel's.
pub unsafe trait IoctlArgument: Sized {}

/// The number of DRM's ioctl `number` with an argument of type `T`.
const fn drm_request<T>(direction: u64, number: u64) -> u64 {
    // Linux' _IOC: direction in bits 31:30, size in 29:16, type in 15:8 (DRM's is 'd'), number in 7:0.
    direction << 30 | (size_of::<T>() as u64) << 16 | 0x64 << 8 | number
}

/// Which way an ioctl's argument goes, as Linux encodes it.
#[derive(Debug, Clone, Copy)]
pub enum Direction {
    /// The kernel reads it.
    Write = 1,
    /// The kernel reads it and writes it back.
    ReadWrite = 3,
}

/// A DRM ioctl; a call that a signal interrupts is made again.
pub fn drm_ioctl<T: IoctlArgument>(
    file: &File,
    direction: Direction,
    number: u64,
    argument: &mut T,
) -> Result<()> {
    let request = drm_request::<T>(direction as u64, number);
    loop {
        // SAFETY: the argument is exclusively borrowed, of the size encoded in the request, and valid for any
        // bytes that the kernel writes (IoctlArgument).
        let result = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(argument)) };
        if result >= 0 {
            return Ok(());
        }
        let error = Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
            return Err(error);
        }
    }
}

/// DRM's version query; its three strings are not asked for.
pub fn drm_version(file: &File) -> Result<(i32, i32, i32)> {
    #[repr(C)]
    struct Version {
        numbers: [i32; 3],
        _pad: i32,
        strings: [[u64; 2]; 3],
    }
    const _: () = assert!(size_of::<Version>() == 64);
    let mut version = Version { numbers: [0; 3], _pad: 0, strings: [[0; 2]; 3] };
    let request = drm_request::<Version>(Direction::ReadWrite as u64, 0);
    // SAFETY: the argument is as large as the request says, and its string lengths are zero, so the kernel
    // writes nothing through the (null) string pointers.
    check(unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(&mut version)) })?;
    let [major, minor, patch] = version.numbers;
    Ok((major, minor, patch))
}

/// A console's font: glyphs of `height` bytes each, a byte a line, the leftmost pixel highest.
#[derive(Debug)]
pub struct ConsoleFont {
    /// Pixels of a line.
    pub width: u32,
    /// Lines of a glyph.
    pub height: u32,
    /// The glyphs one after another.
    pub glyphs: Vec<u8>,
}

/// The font of a console, of up to 512 glyphs of 8 by 32 pixels (`KDFONTOP`).
pub fn console_font(console: &File) -> Result<ConsoleFont> {
    /// Lines that the kernel has room for with each glyph.
    const ROOM: usize = 32;
    const KDFONTOP: u64 = 0x4b72;
    #[repr(C)]
    struct FontOperation {
        operation: u32,
        flags: u32,
        width: u32,
        height: u32,
        count: u32,
        data: *mut u8,
    }
    let mut data = vec![0u8; 512 * ROOM];
    let mut get =
        FontOperation { operation: 1, flags: 0, width: 8, height: 32, count: 512, data: data.as_mut_ptr() };
    // SAFETY: the kernel writes the struct, and at most `count` glyphs of 8 by 32 pixels to `data`, which has
    // room for them and is not looked at meanwhile.
    check(unsafe { libc::ioctl(console.as_raw_fd(), KDFONTOP, &raw mut get) })?;
    let (height, count) = (get.height as usize, get.count as usize);
    let glyphs = data.chunks_exact(ROOM).take(count);
    let glyphs = glyphs.flat_map(|glyph| glyph.iter().take(height).copied()).collect();
    Ok(ConsoleFont { width: get.width, height: get.height, glyphs })
}

/// A shared mapping of a file, or of a buffer object through the DRM device.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping is plain memory that no other value refers to; moving it between threads is harmless.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `size` bytes of `file` from `offset`.
    pub fn new(file: &File, offset: u64, size: usize) -> Result<Self> {
        let offset = i64::try_from(offset).map_err(Error::other)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of this program.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, file.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| Error::other("mmap returned address 0"))?;
        Ok(Self { start, size })
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let place = self.at(offset, bytes.len())?;
        // SAFETY: the range lies inside the mapping (`at`), and `bytes` cannot overlap it: nothing hands out
        // references into a mapping.
        unsafe { place.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies from `offset` into `bytes`.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let place = self.at(offset, bytes.len())?;
        // SAFETY: as in `write`, with source and destination exchanged.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(place.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies `bytes` to `offset` by accesses of four bytes, as device memory is written. Both offset and
    /// length must be multiples of 4.
    pub fn write_words(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check_words(offset, bytes.len())?;
        let (words, _) = bytes.as_chunks::<4>();
        for (index, word) in words.iter().enumerate() {
            let place = self.at(offset + index * 4, 4)?.cast::<u32>();
            // SAFETY: the word lies inside the mapping (`at`) and is aligned: mappings start at a page. The
            // write is volatile because a device is behind it.
            unsafe { place.write_volatile(u32::from_le_bytes(*word)) };
        }
        Ok(())
    }

    /// Copies from `offset` into `bytes` by accesses of four bytes, as device memory is read. Both offset and
    /// length must be multiples of 4.
    pub fn read_words(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.check_words(offset, bytes.len())?;
        let (words, _) = bytes.as_chunks_mut::<4>();
        for (index, word) in words.iter_mut().enumerate() {
            let place = self.at(offset + index * 4, 4)?.cast::<u32>();
            // SAFETY: as in `write_words`.
            *word = unsafe { place.read_volatile() }.to_le_bytes();
        }
        Ok(())
    }

    /// Where `length` bytes at `offset` lie, if all of them do.
    fn at(&self, offset: usize, length: usize) -> Result<NonNull<u8>> {
        self.check(offset, length)?;
        // SAFETY: `offset` is at most the mapping's size (just checked), so the sum stays in the mapping or
        // at its end.
        Ok(unsafe { self.start.add(offset) })
    }

    fn check_words(&self, offset: usize, length: usize) -> Result<()> {
        if offset.is_multiple_of(4) && length.is_multiple_of(4) {
            return Ok(());
        }
        Err(Error::other(format!("{length} bytes at {offset:#x} are no whole words")))
    }

    fn check(&self, offset: usize, length: usize) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(Error::other(format!(
                "{length} bytes at {offset:#x} leave a mapping of {:#x}",
                self.size
            ))),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it exists.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drm::abi;

    #[test]
    fn ioctl_numbers_are_the_headers() {
        // DRM_IOCTL_NOUVEAU_GEM_PUSHBUF and DRM_IOCTL_NOUVEAU_GEM_CPU_PREP, as the C header's macros expand.
        assert_eq!(drm_request::<abi::Pushbuf>(Direction::ReadWrite as u64, abi::GEM_PUSHBUF), 0xc040_6481);
        assert_eq!(drm_request::<abi::CpuPrep>(Direction::Write as u64, abi::GEM_CPU_PREP), 0x4008_6482);
    }

    #[test]
    fn access_beyond_a_mapping_is_an_error() {
        let file = File::options().read(true).write(true).open("/dev/zero").unwrap();
        let mut mapping = Mapping::new(&file, 0, 4096).unwrap();
        mapping.write(4092, &[1, 2, 3, 4]).unwrap();
        let mut last = [0; 4];
        mapping.read(4092, &mut last).unwrap();
        assert_eq!(last, [1, 2, 3, 4]);
        assert!(mapping.write(4093, &[0; 4]).is_err());
        assert!(mapping.read(usize::MAX, &mut [0; 2]).is_err());
        assert!(mapping.write_words(4094, &[0; 4]).is_err());
        mapping.write_words(0, &[5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
        let mut words = [0; 8];
        mapping.read_words(0, &mut words).unwrap();
        assert_eq!(words, [5, 6, 7, 8, 9, 10, 11, 12]);
    }
}
