//! Users and groups by name, as the system's name services know them.
#![allow(unsafe_code, reason = "the name service is only reachable through libc")]

use std::ffi::CString;

/// Bytes that an entry may take.
const ROOM: usize = 16 << 10;

/// The number of a group by its name, or of a number in decimal.
pub fn group_id(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0 as libc::c_char; ROOM];
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut group: libc::group = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::group = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer has the size told.
    let result = unsafe {
        libc::getgrnam_r(name.as_ptr(), &raw mut group, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    (result == 0 && !found.is_null()).then_some(group.gr_gid)
}

/// The number of a user by its name, or of a number in decimal. The last number is nobody's: the kernel says by it that it
/// knows of none.
pub fn user_id(name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number).filter(|number| *number != u32::MAX);
    }
    let name = CString::new(name).ok()?;
    let mut buffer = vec![0 as libc::c_char; ROOM];
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut user: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer has the size told.
    let result = unsafe {
        libc::getpwnam_r(name.as_ptr(), &raw mut user, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    (result == 0 && !found.is_null()).then_some(user.pw_uid)
}
