//! What libraries print.
#![allow(unsafe_code, reason = "the C library's buffer is emptied by a function of its own")]

use std::fs::File;
use std::io::{Read, Seek};

use anyhow::{Context, Result, ensure};
use rustix::fs::{MemfdFlags, memfd_create};

/// What `work` has printed to standard output, by whatever library.
pub fn of(work: impl FnOnce() -> Result<()>) -> Result<String> {
    flush()?;
    let before = rustix::io::dup(std::io::stdout()).context("standard output cannot be kept")?;
    let mut file: File = memfd_create("stdout", MemfdFlags::CLOEXEC).context("no memory for output")?.into();
    rustix::stdio::dup2_stdout(&file).context("standard output cannot be replaced")?;
    let worked = work();
    let flushed = flush();
    rustix::stdio::dup2_stdout(&before).context("standard output cannot be put back")?;
    worked?;
    flushed?;
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn flush() -> Result<()> {
    // SAFETY: null is all streams of the C library, which are its own.
    let status = unsafe { libc::fflush(std::ptr::null_mut()) };
    ensure!(status == 0, "the C library's output cannot be written");
    Ok(())
}
