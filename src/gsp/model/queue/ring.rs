//! A ring of one-page elements in shared memory: where it lies, and how far from element to element.

use crate::abi::common::queue::{MSGQ_FLAGS_SWAP_RX, msgqTxHeader};
use crate::model::error::BootError;
use gpuvmk_chip::addr::PAGE_SIZE;

/// Where a ring lies in shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    /// Offset of the queue's header.
    pub(super) header: u64,
    /// Offset of the first element.
    pub(super) entries: u64,
    /// Elements.
    pub(super) count: u32,
    /// Offset of the read pointer.
    pub(super) reader: u64,
}

impl Ring {
    /// Elements from `from` on to `to`, 0 when they are the same.
    pub(super) const fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { self.count.saturating_sub(from).saturating_add(to) }
    }

    /// Elements that may be written: all but those not read yet, and one.
    pub(super) const fn free(&self, write: u32, reader: u32) -> u32 {
        self.count.saturating_sub(1).saturating_sub(self.distance(reader, write))
    }

    /// The element `elements` further on.
    pub(super) const fn after(&self, from: u32, elements: u32) -> u32 {
        // Both are at most the count, which is small.
        from.wrapping_add(elements) % self.count
    }

    /// Offset of byte `skip` of the record at element `first`, and the bytes up to the end of the ring.
    pub(super) fn place(&self, first: u32, skip: usize) -> (u64, usize) {
        // CAST: widening.
        let begin = u64::from(first).saturating_mul(PAGE_SIZE).saturating_add(skip as u64);
        let room = u64::from(self.count).saturating_mul(PAGE_SIZE).saturating_sub(begin);
        (self.entries.saturating_add(begin), usize::try_from(room).unwrap_or(usize::MAX))
    }
}

/// Checks what a queue's header says of a queue of `size` bytes at `offset`.
pub(super) fn ring(header: &msgqTxHeader, offset: u64, size: u64, memory: u64) -> Result<Ring, BootError> {
    let page = u64::from(header.msgSize);
    let entries = u64::from(header.entryOff);
    if header.version != 0 || page != PAGE_SIZE || header.flags & MSGQ_FLAGS_SWAP_RX == 0 {
        return Err(BootError::Arguments(
            "the command queue must be of version 0, with elements of 4096 bytes and swapped read pointers",
        ));
    }
    let reader = u64::from(header.rxHdrOff);
    if !offset.is_multiple_of(PAGE_SIZE)
        || entries == 0
        || !entries.is_multiple_of(PAGE_SIZE)
        // CAST: widening.
        || reader < size_of::<msgqTxHeader>() as u64
        || reader.saturating_add(4) > entries
        || offset.checked_add(size).is_none_or(|end| end > memory)
    {
        return Err(BootError::Arguments("a queue's header or entries do not fit its memory"));
    }
    let room = size.saturating_sub(entries) / PAGE_SIZE;
    let count = u64::from(header.msgCount).min(room);
    if count < 2 {
        return Err(BootError::Arguments("a queue must have at least two elements"));
    }
    Ok(Ring {
        header: offset,
        entries: offset.saturating_add(entries),
        count: u32::try_from(count).unwrap_or(u32::MAX),
        reader: offset.saturating_add(reader),
    })
}
