//! The file behind a DMA range.

use std::os::fd::OwnedFd;

/// A file range behind a [`DmaMapping`](crate::DmaMapping).
#[derive(Debug)]
pub struct DmaBacking {
    /// Shareable file (memfd, hugetlbfs, tmpfs).
    pub fd: OwnedFd,
    /// Offset of the first byte in the file.
    pub offset: u64,
}
