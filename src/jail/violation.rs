//! The end of a process that tries what its filter forbids: one line that names the thread's role and the
//! call, then death by SIGSYS.
//!
//! The forbidden call has not happened, and none of the thread's own code runs again.

#![allow(unsafe_code, reason = "a signal handler has no safe form")]

use std::cell::Cell;
use std::io;

use super::Role;

thread_local! {
    /// The role that this thread has taken.
    static ROLE: Cell<Option<Role>> = const { Cell::new(None) };
}

/// Notes the role of this thread, for messages.
pub(super) fn remember(role: Role) {
    ROLE.set(Some(role));
}

/// The role that this thread has taken, if any.
pub(super) fn role() -> Option<Role> {
    ROLE.get()
}

/// Installs the handler.
pub(super) fn install() -> io::Result<()> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigsys;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the action is complete, and its handler is async-signal-safe (see there).
    let done = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The part of `siginfo_t` that SIGSYS fills, which `libc` has no names for.
#[repr(C)]
struct SysInfo {
    /// `si_signo`, `si_errno`, `si_code`, padding.
    head: [libc::c_int; 4],
    address: usize,
    number: libc::c_int,
    arch: libc::c_uint,
}

/// Async-signal-safe: a thread-local without initializer or destructor, a buffer on the stack, `write`.
extern "C" fn on_sigsys(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a complete siginfo, whose fields for SIGSYS lie as in `SysInfo`.
    let number = unsafe { (*info.cast::<SysInfo>()).number };
    let role = ROLE.get().map_or("without a role", Role::name);
    let mut line = Line::default();
    line.text("gpuvmk: jail: a thread `");
    line.text(role);
    line.text("` made system call ");
    line.number(number);
    line.text(", which its filter forbids (docs/jail.md); the process ends\n");
    // SAFETY: the buffer is valid for its length. A failure cannot be reported anywhere.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.length) };
    // A call that no filter allows, while SIGSYS is blocked (it is being handled): the kernel takes the
    // default action, which ends the process. An invalid argument, should there be no filter after all.
    // SAFETY: takes integers only.
    unsafe { libc::syscall(libc::SYS_syslog, -1, 0, 0) };
    // SAFETY: ends the process.
    unsafe { libc::_exit(128 + libc::SIGSYS) };
}

/// A line that is put together without allocating.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 256], length: 0 }
    }
}

impl Line {
    fn text(&mut self, text: &str) {
        for byte in text.bytes() {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
    }

    fn number(&mut self, number: i32) {
        let mut rest = number.unsigned_abs();
        let mut digits = [0_u8; 10];
        let mut count = 0;
        while let Some(place) = digits.get_mut(count) {
            *place = b'0' + u8::try_from(rest % 10).unwrap_or(0);
            count += 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            self.text("-");
        }
        for digit in digits.iter().take(count).rev() {
            if let Ok(text) = std::str::from_utf8(std::slice::from_ref(digit)) {
                self.text(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_holds_what_fits() {
        let mut line = Line::default();

        line.text("call ");
        line.number(i32::MIN);
        line.text(" ");
        line.number(41);
        line.number(0);
        let said = String::from_utf8_lossy(&line.bytes[..line.length]).into_owned();
        line.text(&"x".repeat(1000));

        assert_eq!(said, "call -2147483648 410");
        assert_eq!(line.length, line.bytes.len());
    }
}
