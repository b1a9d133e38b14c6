//! The kernel's log: all of it, or from now on.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A place in the kernel's log.
#[derive(Debug)]
pub struct Log {
    file: File,
    seen: Vec<String>,
}

/// All that the kernel has said and still knows.
pub fn all() -> Result<Vec<String>> {
    let mut log = Log::open()?;
    log.lines()?;
    Ok(log.seen)
}

impl Log {
    /// Reads what the kernel says from now on.
    pub fn from_now() -> Result<Self> {
        let mut log = Self::open()?;
        log.file.seek(SeekFrom::End(0)).context("cannot go to the end of the kernel's log")?;
        Ok(log)
    }

    fn open() -> Result<Self> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        Ok(Self { file: file.context("cannot open the kernel's log")?, seen: Vec::new() })
    }

    /// Everything said so far.
    pub fn lines(&mut self) -> Result<&[String]> {
        let mut record = [0; 8192];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => break,
                Ok(length) => {
                    let text = String::from_utf8_lossy(record.get(..length).unwrap_or_default()).into_owned();
                    // "priority,sequence,time,flags;message", then lines of properties that begin with a
                    // space.
                    let message = text.split_once(';').map_or("", |(_, message)| message);
                    self.seen.push(message.lines().next().unwrap_or_default().to_owned());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Records were overwritten before they were read; go on with what is left.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) => return Err(error).context("cannot read the kernel's log"),
            }
        }
        Ok(&self.seen)
    }

    /// Waits for a line that has all of `parts`.
    pub fn wait_for(&mut self, parts: &[&str], limit: Duration) -> Result<Option<String>> {
        let start = Instant::now();
        loop {
            let found = self.lines()?.iter().find(|line| parts.iter().all(|part| line.contains(part)));
            if let Some(line) = found {
                return Ok(Some(line.clone()));
            }
            if start.elapsed() > limit {
                return Ok(None);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
