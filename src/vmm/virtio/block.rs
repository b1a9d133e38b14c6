//! Requests to a disk (virtio 1.2, 5.2): each is a chain of buffers, a header first, a byte for its outcome
//! last.

use std::io::{self, Read, Write};
use std::sync::Arc;

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_RO,
    VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::{DescriptorChain, Reader, Writer};
use vm_memory::GuestMemoryMmap;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::disk::{Disk, SECTOR, SECTOR_BYTES};

/// Entries of a queue.
pub(super) const QUEUE_SIZE: u16 = 256;
/// Most sectors of a request that clears some, and most ranges: what takes a host's file system long is cut.
const MOST_CLEARED: u32 = 1 << 21;
const MOST_RANGES: u32 = 16;

/// Bytes that are copied at a time.
const PIECE: usize = 128 << 10;
/// Name of a disk that has none.
const NAME: &[u8] = b"gpuvmk";

/// The feature that the driver makes writes permanent by itself; without it each write is.
pub(super) const FLUSH: u32 = VIRTIO_BLK_F_FLUSH;
/// The feature of notification thresholds in the queue.
pub(super) const EVENT_IDX: u32 = VIRTIO_RING_F_EVENT_IDX;

/// Features of a disk.
pub(super) fn features(disk: &Disk) -> u64 {
    let always = [
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_MQ,
        FLUSH,
        VIRTIO_RING_F_INDIRECT_DESC,
        EVENT_IDX,
    ];
    let by_use: &[u32] = if disk.is_read_only() {
        &[VIRTIO_BLK_F_RO]
    } else {
        &[VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES]
    };
    always.iter().chain(by_use).fold(0, |features, feature| features | 1 << feature)
}

/// The device's configuration (`virtio_blk_config`); only fields that offered features make valid.
#[repr(C)]
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
pub(super) struct Config {
    capacity: U64,
    size_max: U32,
    seg_max: U32,
    geometry: U32,
    blk_size: U32,
    _topology: [u8; 8],
    _writeback: [u8; 2],
    num_queues: U16,
    max_discard_sectors: U32,
    max_discard_seg: U32,
    discard_sector_alignment: U32,
    max_write_zeroes_sectors: U32,
    max_write_zeroes_seg: U32,
    write_zeroes_may_unmap: u8,
    _unused: [u8; 3],
}

const _: () = assert!(size_of::<Config>() == 60);

impl Config {
    /// Of a disk with that many queues.
    pub(super) fn of(disk: &Disk, queues: u16) -> Self {
        Self {
            capacity: disk.sectors().into(),
            size_max: 0.into(),
            // Header and outcome take one each.
            seg_max: (u32::from(QUEUE_SIZE) - 2).into(),
            geometry: 0.into(),
            blk_size: u32::from(SECTOR_BYTES).into(),
            _topology: [0; 8],
            _writeback: [0; 2],
            num_queues: queues.into(),
            max_discard_sectors: MOST_CLEARED.into(),
            max_discard_seg: MOST_RANGES.into(),
            // In sectors: blocks of usual file systems.
            discard_sector_alignment: 8.into(),
            max_write_zeroes_sectors: MOST_CLEARED.into(),
            max_write_zeroes_seg: MOST_RANGES.into(),
            write_zeroes_may_unmap: 1,
            _unused: [0; 3],
        }
    }
}

#[repr(C)]
#[derive(FromBytes, IntoBytes)]
struct Header {
    kind: U32,
    _reserved: U32,
    sector: U64,
}

/// A range to clear.
#[repr(C)]
#[derive(FromBytes, IntoBytes)]
struct Range {
    sector: U64,
    sectors: U32,
    flags: U32,
}

/// In [`Range`]: the room is not needed. The only flag that there is.
const UNMAP: u32 = 1;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Outcome {
    Ok = 0,
    Failed = 1,
    Unsupported = 2,
}

/// A chain that is no request: nothing can be answered to it.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadChain {
    #[error("A request's buffers are not in the guest's memory")]
    Buffers(#[from] virtio_queue::Error),
    #[error("A request has no byte for its outcome")]
    NoOutcome,
    #[error("A request's buffers cannot be read or written")]
    Memory(#[from] io::Error),
}

/// Carries requests out.
pub(super) struct Server {
    disk: Arc<Disk>,
    piece: Box<[u8]>,
}

impl Server {
    pub(super) fn new(disk: Arc<Disk>) -> Self {
        Self { disk, piece: vec![0; PIECE].into_boxed_slice() }
    }

    /// Carries one request out. With `write_through`, what it writes is permanent when it ends. The bytes
    /// written to the guest's memory.
    pub(super) fn serve(
        &mut self,
        memory: &GuestMemoryMmap,
        chain: DescriptorChain<&GuestMemoryMmap>,
        write_through: bool,
    ) -> Result<u32, BadChain> {
        let mut from = chain.clone().reader(memory)?;
        let mut to = chain.writer(memory)?;
        let room = to.available_bytes().checked_sub(1).ok_or(BadChain::NoOutcome)?;
        let mut last = to.split_at(room)?;
        let outcome = self.carry_out(&mut from, &mut to, write_through);
        let outcome = outcome.unwrap_or_else(|error| {
            log::warn!("A request to a disk failed: {error}");
            Outcome::Failed
        });
        last.write_all(&[outcome as u8])?;
        Ok(u32::try_from(to.bytes_written()).unwrap_or(u32::MAX).saturating_add(1))
    }

    fn carry_out(
        &mut self,
        from: &mut Reader<'_>,
        to: &mut Writer<'_>,
        through: bool,
    ) -> io::Result<Outcome> {
        let mut header = Header::new_zeroed();
        from.read_exact(header.as_mut_bytes())?;
        let sector = header.sector.get();
        match header.kind.get() {
            VIRTIO_BLK_T_IN => self.read(sector, to),
            VIRTIO_BLK_T_OUT if self.disk.is_read_only() => Ok(Outcome::Failed),
            VIRTIO_BLK_T_OUT => {
                let outcome = self.write(sector, from)?;
                if through {
                    self.disk.flush()?;
                }
                Ok(outcome)
            }
            VIRTIO_BLK_T_FLUSH => self.disk.flush().map(|()| Outcome::Ok),
            VIRTIO_BLK_T_GET_ID => {
                let mut name = [0; VIRTIO_BLK_ID_BYTES as usize];
                name.iter_mut().zip(NAME).for_each(|(place, byte)| *place = *byte);
                to.write_all(&name)?;
                Ok(Outcome::Ok)
            }
            VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES if self.disk.is_read_only() => {
                Ok(Outcome::Failed)
            }
            VIRTIO_BLK_T_DISCARD => self.clear(from, true),
            VIRTIO_BLK_T_WRITE_ZEROES => {
                let outcome = self.clear(from, false)?;
                if through {
                    self.disk.flush()?;
                }
                Ok(outcome)
            }
            _ => Ok(Outcome::Unsupported),
        }
    }

    /// Clears ranges. What is discarded may have any content afterwards; here it is zeros.
    fn clear(&mut self, from: &mut Reader<'_>, discard: bool) -> io::Result<Outcome> {
        let ranges = from.available_bytes() / size_of::<Range>();
        let whole = from.available_bytes().is_multiple_of(size_of::<Range>());
        if !whole || u32::try_from(ranges).is_ok_and(|ranges| ranges > MOST_RANGES) || ranges == 0 {
            return Ok(Outcome::Failed);
        }
        for _ in 0..ranges.min(MOST_RANGES as usize) {
            let mut range = Range::new_zeroed();
            from.read_exact(range.as_mut_bytes())?;
            let (sectors, flags) = (range.sectors.get(), range.flags.get());
            if flags & !UNMAP != 0 || discard && flags != 0 {
                return Ok(Outcome::Unsupported);
            }
            let bytes = u64::from(sectors) * SECTOR;
            let place = self.disk.place(range.sector.get(), bytes).filter(|_| sectors <= MOST_CLEARED);
            let Some(at) = place else { return Ok(Outcome::Failed) };
            if bytes == 0 {
                continue;
            }
            match self.disk.clear(at, bytes, discard || flags & UNMAP != 0) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(Outcome::Unsupported),
                cleared => cleared?,
            }
        }
        Ok(Outcome::Ok)
    }

    fn read(&mut self, sector: u64, to: &mut Writer<'_>) -> io::Result<Outcome> {
        let Some(mut at) = self.disk.place(sector, to.available_bytes() as u64) else {
            return Ok(Outcome::Failed);
        };
        while to.available_bytes() != 0 {
            let size = to.available_bytes().min(self.piece.len());
            let (piece, _) = self.piece.split_at_mut(size);
            self.disk.read(at, piece)?;
            to.write_all(piece)?;
            at += size as u64;
        }
        Ok(Outcome::Ok)
    }

    fn write(&mut self, sector: u64, from: &mut Reader<'_>) -> io::Result<Outcome> {
        let Some(mut at) = self.disk.place(sector, from.available_bytes() as u64) else {
            return Ok(Outcome::Failed);
        };
        while from.available_bytes() != 0 {
            let size = from.available_bytes().min(self.piece.len());
            let (piece, _) = self.piece.split_at_mut(size);
            from.read_exact(piece)?;
            self.disk.write(at, piece)?;
            at += size as u64;
        }
        Ok(Outcome::Ok)
    }
}
