//! VRAM that is shared from files of the host. Untouched memory is known to be zero, and unused memory goes
//! back to the host's kernel.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, SeekFrom, StatxFlags, seek, statx};
use rustix::io::Errno;
use vmm_sys_util::fallocate::{FallocateMode, fallocate};

use crate::GpuError;
use gpuvmk_pci::SharedMemory;

/// True when no piece's file has any memory: nothing was ever written there since it was last given back.
pub(super) fn is_untouched(pieces: &[SharedMemory]) -> bool {
    // The blocks of other files are no memory of theirs.
    let empty = |piece: &SharedMemory| {
        statx(&piece.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE | StatxFlags::BLOCKS).is_ok_and(|facts| {
            FileType::from_raw_mode(facts.stx_mode.into()) == FileType::RegularFile && facts.stx_blocks == 0
        })
    };
    !pieces.is_empty() && pieces.iter().all(empty)
}

/// True when no byte of `[from, to)`, counted over all pieces, was written since it was last given back.
pub(super) fn is_hole(pieces: &[SharedMemory], from: u64, to: u64) -> bool {
    let empty = |file: &SharedMemory, low: u64, high: u64| {
        match seek(&file.fd, SeekFrom::Data(low)) {
            Ok(data) => data >= high,
            // No data behind it.
            Err(errno) => errno == Errno::NXIO,
        }
    };
    let mut begin: u64 = 0;
    pieces.iter().all(|piece| {
        let end = begin.saturating_add(piece.size);
        let (low, high) = (from.max(begin), to.min(end));
        let at = |place: u64| piece.offset.saturating_add(place.saturating_sub(begin));
        let hole = low >= high || empty(piece, at(low), at(high));
        begin = end;
        hole
    })
}

/// Gives the pages of `[from, to)`, counted over all pieces, back to the host's kernel: they read as zeros.
pub(crate) fn give_back(pieces: &[SharedMemory], from: u64, to: u64) -> Result<(), GpuError> {
    let mut begin: u64 = 0;
    for piece in pieces {
        let end = begin.saturating_add(piece.size);
        let (low, high) = (from.max(begin), to.min(end));
        if low < high {
            let offset = piece.offset.saturating_add(low.saturating_sub(begin));
            let length = high.saturating_sub(low);
            punch(&piece.fd, offset, length)?;
        }
        begin = end;
    }
    Ok(())
}

/// Gives a file's pages back to the host's kernel.
pub(crate) fn punch(file: &OwnedFd, offset: u64, size: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateMode::PunchHole, true, offset, size)?)
}
