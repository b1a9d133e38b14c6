//! Memory that the card reaches: the IOMMU's mappings, and the memory behind them, which stays mapped here as
//! long.

#![allow(
    unsafe_code,
    reason = "to tell the kernel of memory that a device writes is an unsafe call of vfio-ioctls"
)]

use std::sync::Arc;

use vfio_ioctls::{VfioError, VfioOps};

use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::dma::{MAX_MAPPINGS, MemoryOwner};
use gpuvmk_pci::mapping::{MapError, Mapping};
use gpuvmk_pci::{DmaError, DmaMapping};

/// Ranges at a time; the kernel's own limit is 65,535 a container (`dma_entry_limit`).
const MOST: usize = 32_768;

/// The card's view of memory.
pub(super) struct Iommu {
    kernel: Arc<dyn VfioOps>,
    mapped: OrderedMap<u64, Piece>,
    /// The owner of mappings that name none.
    own: MemoryOwner,
}

/// The memory that the card reaches at an address: a part of a file that is mapped as a whole.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    memory: Arc<Mapping>,
    offset: u64,
    size: u64,
}

impl std::fmt::Debug for Iommu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iommu").field("ranges", &self.mapped.len()).finish_non_exhaustive()
    }
}

impl Iommu {
    /// Nothing is mapped.
    pub(super) fn new(kernel: Arc<dyn VfioOps>) -> Self {
        Self { kernel, mapped: OrderedMap::new(), own: MemoryOwner::new(MAX_MAPPINGS) }
    }

    /// The owner of mappings that name none.
    pub(super) fn owner(&self) -> MemoryOwner {
        self.own.clone()
    }

    /// Memory that the card is to reach, mapped here and with all of its pages there: the kernel has a lock
    /// while it pins them, for which others wait.
    pub(super) fn prepare(own: &MemoryOwner, mapping: &DmaMapping) -> Result<Piece, DmaError> {
        let DmaMapping { iova, size, writable, .. } = *mapping;
        let invalid = |why| DmaError::Invalid { iova, size, why };
        if size == 0 || !iova.is_multiple_of(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(invalid("address and size must be multiples of 4096, and the size not 0"));
        }
        iova.checked_add(size).ok_or(invalid("it wraps"))?;
        if !writable {
            return Err(invalid("memory that the card may only read is not supported"));
        }
        let cannot = |source| DmaError::Backing { iova, size, source };
        let backing = mapping.backing.as_ref().ok_or(invalid("there is no file behind it"))?;
        let owner = mapping.owner.as_ref().unwrap_or(own);
        let (memory, offset) = owner.memory(backing, size, writable).map_err(|error| cannot(as_io(error)))?;
        memory.populate(offset, size).map_err(cannot)?;
        Ok(Piece { memory, offset, size })
    }

    /// Lets the card reach memory.
    pub(super) fn map(&mut self, iova: u64, piece: Piece) -> Result<(), DmaError> {
        let size = piece.size;
        let end = iova.saturating_add(size);
        let before = self.mapped.range(..end).next_back();
        if before.is_some_and(|(start, mapping)| start.saturating_add(mapping.size) > iova) {
            return Err(DmaError::Overlap { iova, size });
        }
        if self.mapped.len() >= MOST {
            return Err(DmaError::TooMany(MOST));
        }
        self.map_piece(iova, piece)
    }

    /// Tells the kernel of a piece.
    fn map_piece(&mut self, iova: u64, piece: Piece) -> Result<(), DmaError> {
        let Piece { ref memory, offset, size } = piece;
        let too_large = DmaError::Invalid { iova, size, why: "it is larger than the address space" };
        let (Ok(length), Ok(into)) = (usize::try_from(size), usize::try_from(offset)) else {
            return Err(too_large);
        };
        let address = std::ptr::with_exposed_provenance_mut(memory.address().saturating_add(into));
        // SAFETY: `length` bytes from `offset` on are a part of `memory`, shared memory that this process
        // only reaches by copies and atomics; it is kept in `mapped`, and so mapped here, until it is
        // unmapped for the card.
        let told = unsafe { self.kernel.vfio_dma_map(iova, length, address) };
        told.map_err(|error| DmaError::Backing { iova, size, source: refused(&error) })?;
        self.mapped.insert(iova, piece);
        Ok(())
    }

    /// Removes the mappings in `[iova, iova + size)`. The kernel unmaps whole mappings only: where a part
    /// stays, the card does not reach that part for a moment.
    pub(super) fn unmap(&mut self, iova: u64, size: u64) -> Result<(), DmaError> {
        let end = iova.checked_add(size).ok_or(DmaError::Invalid { iova, size, why: "it wraps" })?;
        let below = self.mapped.range(..iova).next_back();
        let below = below.filter(|(start, piece)| start.saturating_add(piece.size) > iova);
        let starts: Vec<u64> =
            below.into_iter().chain(self.mapped.range(iova..end)).map(|(start, _)| *start).collect();
        for start in starts {
            let Some(piece) = self.mapped.get(&start).cloned() else { continue };
            self.forget(start)?;
            let last = start.saturating_add(piece.size);
            if start < iova {
                self.map_piece(start, Piece { size: iova.saturating_sub(start), ..piece.clone() })?;
            }
            if end < last {
                let offset = piece.offset.saturating_add(end.saturating_sub(start));
                self.map_piece(end, Piece { offset, size: last.saturating_sub(end), ..piece })?;
            }
        }
        Ok(())
    }

    /// Takes everything away.
    pub(super) fn unmap_all(&mut self) {
        for start in self.mapped.keys().copied().collect::<Vec<_>>() {
            if let Err(error) = self.forget(start) {
                log::error!("{error}");
            }
        }
    }

    /// How many bytes there are.
    pub(super) fn bytes(&self) -> u64 {
        self.mapped.values().map(|piece| piece.size).sum()
    }

    /// How many ranges there are, and how many bytes.
    #[cfg(test)]
    fn usage(&self) -> (usize, u64) {
        (self.mapped.len(), self.bytes())
    }

    fn forget(&mut self, start: u64) -> Result<(), DmaError> {
        let Some(memory) = self.mapped.get(&start) else { return Ok(()) };
        let size = memory.size;
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        // Memory that the card may still reach stays mapped.
        self.kernel.vfio_dma_unmap(start, length).map_err(|error| DmaError::Backing {
            iova: start,
            size,
            source: refused(&error),
        })?;
        if let Some(gone) = self.mapped.remove(&start) {
            gpuvmk_host::reaper::give_up(gone);
        }
        Ok(())
    }
}

fn as_io(error: MapError) -> std::io::Error {
    match error {
        MapError::System { source, .. } => source,
        other => std::io::Error::other(other),
    }
}

/// The kernel's error, with a hint.
fn refused(error: &VfioError) -> std::io::Error {
    let errno = match error {
        VfioError::IommuDmaMap(errno) | VfioError::IommuDmaUnmap(errno) => errno.errno(),
        other => return std::io::Error::other(other.to_string()),
    };
    let said = std::io::Error::from_raw_os_error(errno);
    if errno != libc::ENOMEM {
        return said;
    }
    // Everything that a device reaches is locked.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let limit = limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    std::io::Error::new(
        said.kind(),
        format!(
            "{said}: this process may lock {limit}; raise that (ulimit -l, or LimitMEMLOCK=infinity in its unit)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Mutex;

    use super::*;
    use gpuvmk_pci::DmaBacking;
    use gpuvmk_pci::mapping::create_memory_file;

    #[derive(Default)]
    struct FakeKernel {
        mapped: Mutex<OrderedMap<u64, usize>>,
        full: bool,
    }

    impl VfioOps for FakeKernel {
        unsafe fn vfio_dma_map(&self, iova: u64, size: usize, _: *mut u8) -> Result<(), VfioError> {
            if self.full {
                return Err(VfioError::IommuDmaMap(vmm_sys_util::errno::Error::new(libc::ENOMEM)));
            }
            self.mapped.lock().unwrap().insert(iova, size);
            Ok(())
        }

        fn vfio_dma_unmap(&self, iova: u64, size: usize) -> Result<(), VfioError> {
            assert_eq!(self.mapped.lock().unwrap().remove(&iova), Some(size));
            Ok(())
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    fn memory(iova: u64, pages: u64) -> DmaMapping {
        let size = pages * PAGE_SIZE;
        let fd = create_memory_file(c"ram", size).unwrap();
        DmaMapping { iova, size, writable: true, backing: Some(DmaBacking { fd, offset: 0 }), owner: None }
    }

    fn map(iommu: &mut Iommu, mapping: &DmaMapping) -> Result<(), DmaError> {
        let piece = Iommu::prepare(&iommu.owner(), mapping)?;
        iommu.map(mapping.iova, piece)
    }

    fn iommu() -> (Arc<FakeKernel>, Iommu) {
        let kernel = Arc::new(FakeKernel::default());
        (Arc::clone(&kernel), Iommu::new(kernel))
    }

    #[test]
    fn kernel_is_told_of_each_range_once() {
        let (kernel, mut iommu) = iommu();
        map(&mut iommu, &memory(0x10_000, 4)).unwrap();
        map(&mut iommu, &memory(0x14_000, 1)).unwrap();
        assert_eq!(*kernel.mapped.lock().unwrap(), [(0x10_000, 0x4000), (0x14_000, 0x1000)].into());
        assert_eq!(iommu.usage(), (2, 5 * PAGE_SIZE));

        iommu.unmap(0x10_000, 0x5000).unwrap();
        assert!(kernel.mapped.lock().unwrap().is_empty());
        iommu.unmap(0x10_000, 0x5000).unwrap();
    }

    #[test]
    fn ranges_that_overlap_are_refused_and_parts_may_go() {
        let (kernel, mut iommu) = iommu();
        map(&mut iommu, &memory(0x10_000, 4)).unwrap();
        for start in [0xf_000, 0x10_000, 0x13_000] {
            assert!(
                matches!(map(&mut iommu, &memory(start, 4)), Err(DmaError::Overlap { .. })),
                "{start:#x}"
            );
        }
        for (start, pages) in [(0x20_001, 1), (u64::MAX - 0xfff, 1)] {
            assert!(
                matches!(map(&mut iommu, &memory(start, pages)), Err(DmaError::Invalid { .. })),
                "{start:#x}"
            );
        }
        iommu.unmap(0x11_000, 0x2000).unwrap();
        assert_eq!(*kernel.mapped.lock().unwrap(), [(0x10_000, 0x1000), (0x13_000, 0x1000)].into());
        assert_eq!(iommu.usage(), (2, 2 * PAGE_SIZE));
        iommu.unmap_all();
        assert!(kernel.mapped.lock().unwrap().is_empty());
    }

    #[test]
    fn limit_of_locked_memory_is_named() {
        let mut iommu = Iommu::new(Arc::new(FakeKernel { full: true, ..FakeKernel::default() }));
        let error = map(&mut iommu, &memory(0, 1)).unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("LimitMEMLOCK"), "{why}");
        assert_eq!(iommu.usage(), (0, 0));
    }
}
