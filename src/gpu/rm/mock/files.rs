//! Which files are open in this process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use super::super::kernel::OpenFiles;

/// Files of this process: memory files, which an epoll set does not take, by what `/proc` tells of
/// descriptors and mappings.
#[derive(Debug, Default)]
pub(super) struct MockFiles(BTreeMap<u64, u64>);

impl OpenFiles for MockFiles {
    fn watch(&mut self, file: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        self.0.insert(key, rustix::fs::fstat(file).map_err(io::Error::from)?.st_ino);
        Ok(())
    }

    fn is_open(&self, key: u64) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        let Some(inode) = self.0.get(&key) else { return Ok(false) };
        let mut mapped = std::fs::read_to_string("/proc/self/maps")?;
        mapped.retain(|c| c != '\0');
        let is_mapped = mapped.lines().any(|line| {
            line.contains("memfd:mock-node") && line.split_whitespace().nth(4) == Some(&inode.to_string())
        });
        let is_node = |entry: &std::fs::DirEntry| {
            std::fs::metadata(entry.path()).is_ok_and(|facts| facts.ino() == *inode && facts.is_file())
        };
        Ok(is_mapped
            || std::fs::read_dir("/proc/self/fd")?.filter_map(Result::ok).any(|entry| is_node(&entry)))
    }
}
