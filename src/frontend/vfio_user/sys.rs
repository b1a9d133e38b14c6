//! The system calls that the standard library lacks: sockets that carry descriptors, waiting.

#![allow(unsafe_code, reason = "recvmsg with descriptors")]

use super::wire::MAX_FDS;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Room for the descriptors of one message, aligned as control messages must be.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_SIZE]);

/// Header (16 bytes) and descriptors of one `SCM_RIGHTS` message.
const CONTROL_SIZE: usize = 16 + MAX_FDS * size_of::<RawFd>();

/// What one `recvmsg` brought.
#[derive(Debug)]
pub(super) struct Received {
    /// Bytes; 0 when the other side has closed.
    pub(super) bytes: usize,
    /// True when more descriptors came than fit; the kernel closed those.
    pub(super) descriptors_lost: bool,
}

/// Whether to wait for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Yes,
    /// Without any, the error is [`io::ErrorKind::WouldBlock`].
    No,
}

/// Puts the next bytes into `buffer`; descriptors that come along are appended to `fds`.
pub(super) fn receive(
    socket: &UnixStream,
    buffer: &mut [u8],
    fds: &mut Vec<OwnedFd>,
    wait: Wait,
) -> io::Result<Received> {
    let flags = match wait {
        Wait::Yes => libc::MSG_CMSG_CLOEXEC,
        Wait::No => libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT,
    };
    let mut control = ControlBuffer([0; CONTROL_SIZE]);
    let mut data = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_SIZE;
    let bytes = loop {
        // SAFETY: `message` names a buffer and a control buffer of ours with their true sizes.
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        match usize::try_from(result) {
            Ok(bytes) => break bytes,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    };
    if message.msg_controllen > 0 {
        collect_descriptors(&message, fds);
    }
    Ok(Received { bytes, descriptors_lost: message.msg_flags & libc::MSG_CTRUNC != 0 })
}

/// Takes ownership of every descriptor in the control messages.
fn collect_descriptors(message: &libc::msghdr, fds: &mut Vec<OwnedFd>) {
    // SAFETY: the kernel has filled the control buffer and its length.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !control.is_null() {
        // SAFETY: `CMSG_FIRSTHDR` and `CMSG_NXTHDR` return complete headers inside the buffer.
        let header = unsafe { *control };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(control) }.cast::<RawFd>();
            // SAFETY: only computes the size of a header.
            let header_size = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = header.cmsg_len.saturating_sub(header_size) / size_of::<RawFd>();
            for index in 0..count {
                // SAFETY: the kernel has put `count` descriptors there.
                let place = unsafe { data.add(index) };
                // SAFETY: as above; the place may be unaligned.
                let fd = unsafe { place.read_unaligned() };
                // SAFETY: the kernel has just installed this descriptor for us alone.
                fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        // SAFETY: `control` lies inside the control buffer of `message`.
        control = unsafe { libc::CMSG_NXTHDR(message, control) };
    }
}

/// Sends all of `data`; waits while the socket is full. No signal when the other side has closed.
pub(super) fn send_all(socket: &UnixStream, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        // SAFETY: `data` is valid for its length.
        let result =
            unsafe { libc::send(socket.as_raw_fd(), data.as_ptr().cast(), data.len(), libc::MSG_NOSIGNAL) };
        match usize::try_from(result) {
            Ok(sent) => data = data.get(sent..).unwrap_or(&[]),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Waits until one of two descriptors can be read; true for each that can (or has failed).
pub(super) fn wait_readable(first: BorrowedFd<'_>, second: BorrowedFd<'_>) -> io::Result<(bool, bool)> {
    let entry = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    let mut entries = [entry(first), entry(second)];
    loop {
        match poll(&mut entries, None) {
            Ok(_) => {
                let [first, second] = entries;
                return Ok((!first.revents().is_empty(), !second.revents().is_empty()));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Makes reads and writes through this descriptor return instead of waiting.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes integers only.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes integers only.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True when a write to this descriptor would find room now.
pub(super) fn has_room(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut entries = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    matches!(poll(&mut entries, Some(&now)), Ok(1..)) && entries.iter().all(|e| e.revents() == PollFlags::OUT)
}

/// True when the other end of a connection is closed, even if data may still be read from it.
pub(super) fn has_hung_up(socket: &UnixStream) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut entries = [PollFd::new(socket, PollFlags::empty())];
    matches!(poll(&mut entries, Some(&now)), Ok(1..))
}

/// Waits until the other end of a connection is closed; false if it is still open when the time is over.
pub(super) fn hangs_up_within(socket: &UnixStream, limit: std::time::Duration) -> bool {
    let until = std::time::Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        let mut entries = [PollFd::new(socket, PollFlags::empty())];
        match poll(&mut entries, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) => return false,
            Err(rustix::io::Errno::INTR) if !left.is_zero() => {}
            // A socket that cannot be waited for has failed.
            _ => return true,
        }
    }
}

/// True when the descriptor belongs to an anonymous kernel object (eventfd and its like), and to nothing that
/// has a file, socket or pipe behind it.
pub(super) fn is_anonymous(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut facts: libc::stat = unsafe { zeroed() };
    // SAFETY: `facts` is writable.
    let result = unsafe { libc::fstat(fd.as_raw_fd(), &raw mut facts) };
    if result == 0 { Ok(facts.st_mode & libc::S_IFMT == 0) } else { Err(io::Error::last_os_error()) }
}

/// An eventfd as the standard library sees descriptors.
pub(super) fn borrow(event: &vmm_sys_util::eventfd::EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open while `event` lives, which the result borrows.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}
