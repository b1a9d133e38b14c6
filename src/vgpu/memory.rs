//! The guest's memory as this process reaches it: its partition of VRAM through a shared mapping, its system
//! memory through the ranges that its machine announced.
//!
//! Where the partition is slow to read, page tables and instance memory are read from a copy
//! ([`TableCache`]).

use std::io;

use super::VgpuError;
use super::table_cache::TableCache;
use gpuvmk_backend::{NoTarget, VramPiece};
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::dma::DmaSpace;
use gpuvmk_pci::mapping::{Access, FilePiece, MapError, Mapping, MemoryError};
use gpuvmk_shadow_pagetable::{GuestMemory, NotGuestMemory, Version};
use std::os::fd::AsFd;

/// The partition, mapped as one piece.
#[derive(Debug)]
pub struct Window {
    memory: Mapping,
    pieces: Vec<SharedMemory>,
    /// Copies of pages, where the device is slow to read.
    tables: Option<TableCache>,
}

impl Window {
    /// Maps what the aggregator granted; `table_cache` bytes of copies if it is slow to read.
    pub fn new(
        grant_vram: u64,
        pieces: Vec<SharedMemory>,
        table_cache: Option<usize>,
    ) -> Result<Self, VgpuError> {
        let shown = pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.size));
        if shown != Some(grant_vram) || grant_vram == 0 {
            return Err(VgpuError::Window { granted: grant_vram, shown: shown.unwrap_or(u64::MAX) });
        }
        let files: Vec<_> = pieces
            .iter()
            .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
            .collect();
        let memory = Mapping::granted(&files, Access::ReadWrite)?;
        Ok(Self { memory, pieces, tables: table_cache.map(TableCache::new) })
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Drops all copies: memory is changed from elsewhere.
    pub fn forget_tables(&self) {
        if let Some(tables) = &self.tables {
            tables.clear();
        }
    }

    /// Has `piece` in place of VRAM from `address` on, for everybody in this process. Not where page tables
    /// are read from copies.
    pub(super) fn cover(&self, address: u64, piece: &FilePiece<'_>) -> Result<(), MapError> {
        self.memory.replace(address, piece)
    }

    /// Has VRAM in its own place again.
    pub(super) fn uncover(&self, address: u64, size: u64) -> Result<(), MapError> {
        let mut result = Ok(());
        self.pieces_of(address, size, &mut |start, piece| {
            if result.is_ok() {
                result = self.memory.replace(start, &piece);
            }
        });
        result
    }

    /// Reads VRAM itself.
    pub(super) fn read(&self, address: u64, data: &mut [u8]) -> Result<(), MemoryError> {
        self.memory.read(address, data)
    }

    pub(super) fn write(&self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let Some(tables) = &self.tables else { return self.memory.write(address, data) };
        self.check(address, data.len())?;
        tables.write(address, data, |at, part| self.memory.write(at, part))
    }

    /// Reads memory that only CPUs write.
    fn read_tables(&self, address: u64, data: &mut [u8]) -> Result<(), MemoryError> {
        let Some(tables) = &self.tables else { return self.memory.read(address, data) };
        self.check(address, data.len())?;
        tables.read(address, data, |at, page| {
            // Over the bus every access is a round trip: in words, because a plain copy may go byte by byte.
            (at..)
                .step_by(8)
                .zip(page.chunks_exact_mut(8))
                .try_for_each(|(at, word)| self.memory.read(at, word))
        })
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), MemoryError> {
        let (size, limit) = (length as u64, self.size());
        match offset.checked_add(size) {
            Some(end) if end <= limit => Ok(()),
            _ => Err(MemoryError::OutOfRange { offset, size, limit }),
        }
    }

    /// Tells which files show `[offset, offset + size)`: none where page tables are read from copies, in
    /// which stores through them would be missing.
    pub fn show(&self, offset: u64, size: u64, visit: &mut dyn FnMut(VramPiece<'_>)) {
        if self.tables.is_some() {
            return;
        }
        self.pieces_of(offset, size, &mut |start, FilePiece { fd, offset, size }| {
            visit(VramPiece { start, size, fd, offset });
        });
    }

    /// The files of `[address, address + size)`, each with the address of its first byte.
    fn pieces_of(&self, address: u64, size: u64, visit: &mut dyn FnMut(u64, FilePiece<'_>)) {
        let (mut start, end) = (0u64, address.saturating_add(size));
        for piece in &self.pieces {
            let stop = start.saturating_add(piece.size);
            let (from, to) = (address.max(start), end.min(stop));
            if from < to {
                let offset = piece.offset + (from - start);
                visit(from, FilePiece { fd: piece.fd.as_fd(), offset, size: to - from });
            }
            start = stop;
        }
    }

    /// Files that show `[offset, offset + size)`.
    pub fn share(&self, offset: u64, size: u64) -> io::Result<Vec<SharedMemory>> {
        if self.tables.is_some() {
            // Stores through them would be missing in the copies.
            let why = "this VRAM is not shared: page tables in it are read from copies";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let end = offset.checked_add(size).filter(|end| *end <= self.size());
        let end = end.ok_or_else(|| refused("the range leaves the vGPU's VRAM"))?;
        if size == 0 || !offset.is_multiple_of(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(refused("the range is not made of whole pages"));
        }
        let mut shared = Vec::new();
        self.pieces_of(offset, end - offset, &mut |_, FilePiece { fd, offset, size }| {
            shared.push(fd.try_clone_to_owned().map(|fd| SharedMemory { fd, offset, size }));
        });
        shared.into_iter().collect()
    }
}

/// Window and system memory together.
#[derive(Debug)]
pub struct Memory<'a> {
    pub window: &'a Window,
    pub system: &'a DmaSpace,
}

impl Memory<'_> {
    /// A word of a page of VRAM.
    pub fn vram_u32(&self, page: u64, offset: u64) -> Result<u32, NoTarget> {
        let address = page.saturating_add(offset);
        let refused = NoTarget { address: PhysicalAddress { aperture: Aperture::Vram, address }, size: 4 };
        self.window.memory.read_u32(address).map_err(|_| refused)
    }

    pub fn load(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        let refused = NoTarget { address, size: data.len() };
        match address.aperture {
            Aperture::Vram => self.window.memory.read(address.address, data).map_err(|_| refused),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.read(address.address, data).map_err(|_| refused)
            }
        }
    }

    /// Reads memory that only CPUs write: engines' stores may be missed.
    pub fn load_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        match address.aperture {
            Aperture::Vram => {
                let refused = NoTarget { address, size: data.len() };
                self.window.read_tables(address.address, data).map_err(|_| refused)
            }
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => self.load(address, data),
        }
    }

    /// Reads commands, unless that takes long: over the bus every word is a round trip.
    pub fn load_commands(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        if address.aperture == Aperture::Vram && self.window.tables.is_some() {
            return Err(NoTarget { address, size: data.len() });
        }
        self.load(address, data)
    }

    pub fn store(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        let refused = NoTarget { address, size: data.len() };
        match address.aperture {
            Aperture::Vram => self.window.write(address.address, data).map_err(|_| refused),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.write(address.address, data).map_err(|_| refused)
            }
        }
    }
}

impl GuestMemory for Memory<'_> {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuestMemory> {
        self.load_tables(address, data).map_err(|_| NotGuestMemory)
    }

    fn version(&self, address: PhysicalAddress, size: usize) -> Option<Version> {
        match address.aperture {
            Aperture::Vram => self.window.tables.as_ref()?.version(address.address, size).map(Version),
            // Others write there whenever they like.
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => None,
        }
    }

    fn contains(&self, address: PhysicalAddress, size: u64) -> bool {
        match address.aperture {
            Aperture::Vram => address.address.checked_add(size).is_some_and(|end| end <= self.window.size()),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.contains(address.address, size)
            }
        }
    }
}
