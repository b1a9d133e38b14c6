//! Copies in and out of memory that others write meanwhile.

#![allow(unsafe_code, reason = "mmap, and access to memory shared with other processes, have no safe form")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Copies `data.len()` bytes from shared memory.
///
/// # Safety
/// `from` must be valid for that many bytes.
pub(super) unsafe fn load(from: *const u8, data: &mut [u8]) {
    macro_rules! word {
        ($atomic:ty, $bytes:expr) => {{
            // SAFETY: valid for reads of this size (the caller), aligned (checked before), and only ever
            // accessed as raw memory.
            let word = unsafe { <$atomic>::from_ptr(from.cast_mut().cast()) };
            $bytes.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }};
    }
    match data.len() {
        1 => word!(AtomicU8, data),
        2 if from.addr().is_multiple_of(2) => word!(AtomicU16, data),
        4 if from.addr().is_multiple_of(4) => word!(AtomicU32, data),
        8 if from.addr().is_multiple_of(8) => word!(AtomicU64, data),
        // SAFETY: valid for that many bytes (the caller); `data` is our own memory.
        length => unsafe { std::ptr::copy_nonoverlapping(from, data.as_mut_ptr(), length) },
    }
}

/// Copies `data` into shared memory.
///
/// # Safety
/// `to` must be valid for writes of `data.len()` bytes.
pub(super) unsafe fn store(to: *mut u8, data: &[u8]) {
    macro_rules! word {
        ($atomic:ty, $integer:ty) => {
            if let Ok(bytes) = data.try_into() {
                // SAFETY: valid for writes of this size (the caller), aligned (checked before), and only
                // ever accessed as raw memory.
                let word = unsafe { <$atomic>::from_ptr(to.cast()) };
                word.store(<$integer>::from_ne_bytes(bytes), Ordering::Release);
            }
        };
    }
    match data.len() {
        1 => word!(AtomicU8, u8),
        2 if to.addr().is_multiple_of(2) => word!(AtomicU16, u16),
        4 if to.addr().is_multiple_of(4) => word!(AtomicU32, u32),
        8 if to.addr().is_multiple_of(8) => word!(AtomicU64, u64),
        // SAFETY: valid for that many bytes (the caller); `data` is our own memory.
        length => unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, length) },
    }
}
