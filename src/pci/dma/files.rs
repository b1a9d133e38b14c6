//! The files behind an owner's DMA ranges: each is mapped once as a whole, however many ranges show parts of
//! it.
//!
//! QEMU announces guest RAM in a dozen pieces. It removes and restores them while the firmware moves the
//! holes below 1 MiB, and goes page by page for a guest with an IOMMU. A process may have only so many
//! mappings, so a file is mapped as a whole. The announced ranges decide what is reachable, not the mappings.
//!
//! Each owner has its own table. Each announcement proves its rights by its own descriptor: an existing
//! mapping for writing gives the next announcement of the file no right to write.

use super::backing::DmaBacking;
use crate::mapping::{self, Access, MapError, Mapping};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

/// Most bytes of files that are mapped as a whole, all together; what is beyond is mapped by the announced
/// piece. A sparse file must not eat the address space.
const MAX_WHOLE_FILES: u64 = 1 << 40;

/// A file, and how it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    identity: (u64, u64),
    access: Access,
}

/// Mapped files by identity.
#[derive(Debug)]
pub(super) struct FileTable {
    limit: usize,
    /// Its pages are others' to make.
    others: bool,
    whole: HashMap<Key, Weak<Mapping>>,
    /// Mappings of single pieces.
    parts: Vec<Weak<Mapping>>,
}

impl FileTable {
    pub(super) fn new(limit: usize, others: bool) -> Self {
        Self { limit, others, whole: HashMap::new(), parts: Vec::new() }
    }

    /// Memory that shows `size` bytes of `backing`, and the offset of the first byte in it.
    pub(super) fn map(
        &mut self,
        backing: &DmaBacking,
        size: u64,
        writable: bool,
    ) -> Result<(Arc<Mapping>, u64), MapError> {
        let fd = backing.fd.as_fd();
        let offset = backing.offset;
        let access = if writable { Access::ReadWrite } else { Access::ReadOnly };
        let invalid = |why| MapError::Invalid { offset, size, why };
        let end = offset.checked_add(size).ok_or(invalid("it wraps"))?;
        let facts = mapping::check_file(fd)?;
        if writable && !facts.writable {
            return Err(MapError::NotWritable);
        }
        if end > facts.size {
            return Err(MapError::TooSmall { offset, size, file_size: facts.size });
        }
        let key = Key { identity: facts.identity, access };
        if let Some(whole) = self.whole.get(&key).and_then(Weak::upgrade).filter(|map| map.size() >= end) {
            return Ok((whole, offset));
        }
        if self.whole.len() + self.parts.len() >= self.limit {
            // Some mappings may have fallen out of use since.
            self.forget_unused();
        }
        if self.whole.len() + self.parts.len() >= self.limit {
            return Err(MapError::TooMany(self.limit));
        }
        let map = if self.others { Mapping::of_others } else { Mapping::of_file };
        // A size that is no multiple of the page leaves the last part of a page unmapped.
        let whole_size = facts.size - facts.size % facts.page;
        if self.whole_bytes().saturating_add(whole_size) <= MAX_WHOLE_FILES
            && whole_size >= end
            && let Ok(whole) = map(fd, 0, whole_size, access)
        {
            let whole = Arc::new(whole);
            // One that the file has outgrown lives on with the ranges that use it.
            if let Some(outgrown) = self.whole.insert(key, Arc::downgrade(&whole)) {
                self.parts.push(outgrown);
            }
            return Ok((whole, offset));
        }
        let part = Arc::new(map(fd, offset, size, access)?);
        self.parts.push(Arc::downgrade(&part));
        Ok((part, 0))
    }

    /// The present mappings.
    pub(super) fn mappings(&self) -> impl Iterator<Item = Arc<Mapping>> {
        self.whole.values().chain(&self.parts).filter_map(Weak::upgrade)
    }

    fn whole_bytes(&self) -> u64 {
        let bytes = |mapping: &Weak<Mapping>| mapping.upgrade().map_or(0, |mapping| mapping.size());
        self.whole.values().map(bytes).fold(0, u64::saturating_add)
    }

    /// Drops entries whose last range is gone.
    fn forget_unused(&mut self) {
        self.whole.retain(|_, mapping| mapping.strong_count() > 0);
        self.parts.retain(|mapping| mapping.strong_count() > 0);
    }
}
