//! A second process of this program, made before it has threads: for what the first one is not to do itself.
#![allow(unsafe_code, reason = "a process without another program has no safe form")]

use std::io;
use std::os::fd::OwnedFd;

/// How many threads this process has.
fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Starts a process that carries `work` out and ends with what it returns. It is given one end of a pair of
/// sockets, this process the other: whoever ends closes its own, and the other one knows.
///
/// # Errors
/// This process has other threads, whose locks a second one would find taken for ever, or the host has no
/// more processes.
pub fn second_process(work: impl FnOnce(OwnedFd) -> i32) -> io::Result<OwnedFd> {
    if threads()? != 1 {
        return Err(io::Error::other("this process has threads already"));
    }
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    // SAFETY: there is one thread (just counted, and nobody else starts one), so the child finds every lock
    // as this thread has it, and may go on like its parent.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            std::process::exit(work(theirs.into()))
        }
        _ => Ok(ours.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_with_threads_has_no_second_one() {
        // A test runs in a thread beside the first one.
        assert!(second_process(|_| 0).unwrap_err().to_string().contains("threads"));
    }
}
