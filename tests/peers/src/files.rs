//! Descriptors of every kind, to be sent where they do not belong.

use std::fs::File;
use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};

/// A memory file of `size` bytes that can be truncated.
pub fn memory(size: u64) -> Result<OwnedFd> {
    let file = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, size)?;
    Ok(file)
}

/// One that nobody can write to any more.
pub fn sealed(size: u64) -> Result<OwnedFd> {
    let file = memory(size)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// An eventfd that blocks.
pub fn event(initial: u32) -> Result<OwnedFd> {
    Ok(rustix::event::eventfd(initial, EventfdFlags::CLOEXEC)?)
}

/// Descriptors that are neither memory nor events, with their kinds.
pub fn wrong() -> Result<Vec<(&'static str, OwnedFd)>> {
    let (reader, writer) = std::io::pipe()?;
    let (left, right) = std::os::unix::net::UnixStream::pair()?;
    // Ends whose other sides are gone.
    let (orphan, _) = std::io::pipe()?;
    let (_, dead) = std::io::pipe()?;
    Ok(vec![
        ("the reading end of a pipe", reader.into()),
        ("the writing end of a pipe", writer.into()),
        ("a pipe that nobody writes", orphan.into()),
        ("a pipe that nobody reads", dead.into()),
        ("a socket", left.into()),
        ("its other end", right.into()),
        ("a folder", File::open("/")?.into()),
        ("/dev/null", File::open("/dev/null")?.into()),
        ("/dev/zero", File::options().read(true).write(true).open("/dev/zero")?.into()),
        ("/proc/self/mem", File::options().read(true).write(true).open("/proc/self/mem")?.into()),
        ("/proc/self/maps", File::open("/proc/self/maps")?.into()),
    ])
}
