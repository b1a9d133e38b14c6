//! Users and groups by name, as the system's name services know them.
#![allow(unsafe_code, reason = "the name service is only reachable through libc")]

use std::ffi::{CStr, CString};

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

/// The users who are listed as members of a group; none where there is no such group. Whose own group it is
/// is not among them.
pub fn members(group: &str) -> Vec<String> {
    let Ok(name) = CString::new(group) else { return Vec::new() };
    let mut buffer = vec![0 as libc::c_char; ROOM];
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::group = std::ptr::null_mut();
    // SAFETY: all pointers are valid for the call, and the buffer has the size told.
    let result = unsafe {
        libc::getgrnam_r(name.as_ptr(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    let mut members = Vec::new();
    if result != 0 || found.is_null() || entry.gr_mem.is_null() {
        return members;
    }
    let mut next = entry.gr_mem;
    loop {
        // SAFETY: the list ends with a null pointer, and this is not behind it; it lies in `buffer`, which
        // lives.
        let member = unsafe { *next };
        if member.is_null() {
            return members;
        }
        // SAFETY: an entry of the list is a string in `buffer`, with its end mark.
        let member = unsafe { CStr::from_ptr(member) };
        members.extend(member.to_str().ok().map(str::to_owned));
        // SAFETY: the entry was not the null pointer at the end, so there is one more.
        next = unsafe { next.add(1) };
    }
}

/// The number of a user by its name, or of a number in decimal. The last number is no user's: the kernel uses
/// it for "unknown".
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_they_are_and_the_last_is_nobodys() {
        assert_eq!(user_id("0"), Some(0));
        assert_eq!(user_id("root"), Some(0));
        assert_eq!(user_id("4294967295"), None);
        assert_eq!(user_id("no-such-user-here"), None);
        assert_eq!(group_id("root"), Some(0));
    }

    #[test]
    fn group_that_does_not_exist_has_no_members() {
        assert_eq!(members("no-such-group-here"), [""; 0]);
        assert_eq!(members("in\0side"), [""; 0]);
        // Every machine has it, with whatever members.
        assert!(members("root").iter().all(|member| !member.is_empty()));
    }
}
