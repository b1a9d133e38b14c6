//! Everything that engines reach by physical address: VRAM, and system memory by DMA.

use crate::vram::Vram;
use gpuvmk_backend::NoTarget;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_pci::dma::{DmaFault, DmaSpace};
use gpuvmk_pci::mapping::MemoryError;

/// Physical memory. Every method may be called from any thread.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) vram: Vram,
    pub(crate) system: DmaSpace,
}

/// Error of an access that reached no memory. The caller knows which access it was.
struct Missed;

impl From<MemoryError> for Missed {
    fn from(_: MemoryError) -> Self {
        Self
    }
}

impl From<DmaFault> for Missed {
    fn from(_: DmaFault) -> Self {
        Self
    }
}

impl Memory {
    pub(crate) fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        let size = data.len();
        let result: Result<(), Missed> = match address.aperture {
            Aperture::Vram => self.vram.memory.read(address.address, data).map_err(Missed::from),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.read(address.address, data).map_err(Missed::from)
            }
        };
        result.map_err(|Missed| NoTarget { address, size })
    }

    pub(crate) fn write(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        let size = data.len();
        let result: Result<(), Missed> = match address.aperture {
            Aperture::Vram => self.vram.memory.write(address.address, data).map_err(Missed::from),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.write(address.address, data).map_err(Missed::from)
            }
        };
        result.map_err(|Missed| NoTarget { address, size })
    }

    /// Replaces an aligned word by what `change` makes of it, in one step for everybody else; `None` leaves
    /// it. Returns the word before.
    pub(crate) fn update_u32(
        &self,
        address: PhysicalAddress,
        change: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, NoTarget> {
        let result: Result<u32, Missed> = match address.aperture {
            Aperture::Vram => self.vram.memory.update_u32(address.address, change).map_err(Missed::from),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.update_u32(address.address, change).map_err(Missed::from)
            }
        };
        result.map_err(|Missed| NoTarget { address, size: 4 })
    }

    /// The same for a double word.
    pub(crate) fn update_u64(
        &self,
        address: PhysicalAddress,
        change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, NoTarget> {
        let result: Result<u64, Missed> = match address.aperture {
            Aperture::Vram => self.vram.memory.update_u64(address.address, change).map_err(Missed::from),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.update_u64(address.address, change).map_err(Missed::from)
            }
        };
        result.map_err(|Missed| NoTarget { address, size: 8 })
    }

    /// Makes `size` bytes zeros.
    pub(crate) fn clear(&self, address: PhysicalAddress, size: u64) -> Result<(), NoTarget> {
        let result: Result<(), Missed> = match address.aperture {
            Aperture::Vram => self.vram.clear(address.address, size).map_err(Missed::from),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.fill(address.address, size, 0).map_err(Missed::from)
            }
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        result.map_err(|Missed| NoTarget { address, size })
    }

    pub(crate) fn read_u32(&self, address: PhysicalAddress) -> Result<u32, NoTarget> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn read_u64(&self, address: PhysicalAddress) -> Result<u64, NoTarget> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Copies without a buffer between. Says which side was missed.
    pub(crate) fn copy(
        &self,
        from: PhysicalAddress,
        to: PhysicalAddress,
        size: u64,
    ) -> Result<(), CopyMissed> {
        let vram = &self.vram.memory;
        let source = |_: Missed| CopyMissed::Source;
        let target = |_: Missed| CopyMissed::Target;
        match (from.aperture, to.aperture) {
            (Aperture::Vram, Aperture::Vram) => {
                vram.copy_to(from.address, vram, to.address, size).map_err(|_| {
                    let inside = from.address.checked_add(size).is_some_and(|end| end <= vram.size());
                    if inside { CopyMissed::Target } else { CopyMissed::Source }
                })
            }
            // A fault at the bus side and a range that VRAM does not have look alike: VRAM is checked first.
            (Aperture::Vram, _) => {
                self.check_vram(from.address, size).map_err(source)?;
                self.system
                    .copy_from_mapping(to.address, vram, from.address, size)
                    .map_err(|fault| target(fault.into()))
            }
            (_, Aperture::Vram) => {
                self.check_vram(to.address, size).map_err(target)?;
                self.system
                    .copy_to_mapping(from.address, vram, to.address, size)
                    .map_err(|fault| source(fault.into()))
            }
            (_, _) => self.system.copy(from.address, to.address, size).map_err(|fault| {
                let in_source = fault.address.wrapping_sub(from.address) < size;
                if in_source { CopyMissed::Source } else { CopyMissed::Target }
            }),
        }
    }

    fn check_vram(&self, offset: u64, size: u64) -> Result<(), Missed> {
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.vram.size());
        if inside { Ok(()) } else { Err(Missed) }
    }
}

/// The side of a copy that reached nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMissed {
    /// The source.
    Source,
    /// The target.
    Target,
}
