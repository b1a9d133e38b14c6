//! Requests to a disk (virtio 1.2, 5.2): each is a chain of buffers, a header first, a byte for its outcome
//! last.

use std::io::{self, Read, Write};

use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_ID_BYTES,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
};
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use virtio_queue::{DescriptorChain, Reader, Writer};
use vm_memory::GuestMemoryMmap;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::common::MAX_QUEUE_SIZE;
use super::disk::{Disk, SECTOR_BYTES};

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
    let always = [VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_BLK_SIZE, FLUSH, VIRTIO_RING_F_INDIRECT_DESC, EVENT_IDX];
    let read_only = disk.is_read_only().then_some(VIRTIO_BLK_F_RO);
    always.into_iter().chain(read_only).fold(0, |features, feature| features | 1 << feature)
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
}

impl Config {
    /// Of a disk.
    pub(super) fn of(disk: &Disk) -> Self {
        Self {
            capacity: disk.sectors().into(),
            size_max: 0.into(),
            // Header and outcome take one each.
            seg_max: (u32::from(MAX_QUEUE_SIZE) - 2).into(),
            geometry: 0.into(),
            blk_size: u32::from(SECTOR_BYTES).into(),
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
    disk: Disk,
    piece: Box<[u8]>,
}

impl Server {
    pub(super) fn new(disk: Disk) -> Self {
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
            _ => Ok(Outcome::Unsupported),
        }
    }

    fn read(&mut self, sector: u64, to: &mut Writer<'_>) -> io::Result<Outcome> {
        let Some(mut at) = self.disk.place(sector, to.available_bytes()) else { return Ok(Outcome::Failed) };
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
        let Some(mut at) = self.disk.place(sector, from.available_bytes()) else {
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
