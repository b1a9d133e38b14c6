//! What handles stand for: objects in instance memory, each a range of memory that a channel may use.

use gpuvmk_chip::display::ChannelName;
use gpuvmk_chip::display::memory::{NAMES_BYTES, NV_DMA, NV_UDISP_HASH_CONTEXT, OBJECT_BYTES};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_gsp::abi::values::InstanceMemory;
use gpuvmk_mmio_trap::PhysicalMemory;

/// Why a handle is not what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NameError {
    /// There is no instance memory.
    #[error("there is no instance memory")]
    NoInstanceMemory,
    /// No object of the channel has that handle.
    #[error("no object of the channel has the handle {0:#010x}")]
    Unknown(u32),
    /// The object names no memory that there is.
    #[error("the object {0:#010x} is of no memory")]
    Target(u32),
    /// What is wanted is not all in the memory of the object.
    #[error("{size} bytes at {offset:#x} are not in the object {handle:#010x}")]
    Outside {
        /// The handle.
        handle: u32,
        /// Where, in bytes.
        offset: u64,
        /// How many bytes.
        size: u64,
    },
}

/// Memory that a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextDma {
    handle: u32,
    aperture: Aperture,
    start: u64,
    /// The address behind its last byte.
    end: u64,
    /// Surfaces in it are laid out in blocks.
    pub is_block_linear: bool,
}

impl ContextDma {
    /// Where a range of it is.
    ///
    /// # Errors
    /// It is not all in it.
    pub fn at(&self, offset: u64, size: u64) -> Result<PhysicalAddress, NameError> {
        let outside = NameError::Outside { handle: self.handle, offset, size };
        let address = self.start.checked_add(offset).ok_or(outside)?;
        let end = address.checked_add(size).ok_or(outside)?;
        if end > self.end {
            return Err(outside);
        }
        Ok(PhysicalAddress { aperture: self.aperture, address })
    }
}

/// The names of all channels, read once.
#[derive(Debug)]
pub struct Names {
    instance: InstanceMemory,
    table: Vec<u8>,
}

impl Names {
    /// Reads them.
    ///
    /// # Errors
    /// There is no instance memory.
    pub fn read(memory: &dyn PhysicalMemory, instance: Option<InstanceMemory>) -> Result<Self, NameError> {
        let instance = instance.ok_or(NameError::NoInstanceMemory)?;
        let mut table = vec![0; NAMES_BYTES];
        // Only the driver's processor writes it.
        if memory.read_tables(vram(instance.address), &mut table) {
            Ok(Self { instance, table })
        } else {
            Err(NameError::NoInstanceMemory)
        }
    }

    /// What a handle stands for.
    ///
    /// # Errors
    /// No object of the channel has it, or the object has no meaning.
    pub fn find(
        &self,
        memory: &dyn PhysicalMemory,
        channel: ChannelName,
        handle: u32,
    ) -> Result<ContextDma, NameError> {
        let (words, _) = self.table.as_chunks::<4>();
        let (names, _) = words.as_chunks::<2>();
        let context = names.iter().map(|name| name.map(u32::from_le_bytes)).find_map(|[own, context]| {
            let is_own = own == handle && NV_UDISP_HASH_CONTEXT::CHN.get(context) == channel.number();
            (is_own && handle != 0 && context != 0).then_some(context)
        });
        let context = context.ok_or(NameError::Unknown(handle))?;
        let offset = u64::from(NV_UDISP_HASH_CONTEXT::INSTANCE.get(context)) * 16;
        let mut object = [0; OBJECT_BYTES];
        // CAST: widening.
        let is_inside = offset + OBJECT_BYTES as u64 <= self.instance.size;
        let at = self.instance.address.checked_add(offset).filter(|_| is_inside);
        if !at.is_some_and(|at| memory.read_tables(vram(at), &mut object)) {
            return Err(NameError::Unknown(handle));
        }
        object_of(handle, &object)
    }
}

const fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

/// An object: flags, start and limit in 256 bytes, of two words each.
fn object_of(handle: u32, object: &[u8; OBJECT_BYTES]) -> Result<ContextDma, NameError> {
    let (words, _) = object.as_chunks::<4>();
    let word = |at: usize| words.get(at).copied().map_or(0, u32::from_le_bytes);
    let pair = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
    let flags = word(0);
    let aperture = match NV_DMA::TARGET_NODE.get(flags) {
        NV_DMA::TARGET_NODE::PHYSICAL_NVM => Aperture::Vram,
        NV_DMA::TARGET_NODE::PHYSICAL_PCI => Aperture::SystemNonCoherent,
        NV_DMA::TARGET_NODE::PHYSICAL_PCI_COHERENT => Aperture::SystemCoherent,
        _ => return Err(NameError::Target(handle)),
    };
    let bytes = |units: u64| units.checked_mul(0x100).ok_or(NameError::Target(handle));
    let (start, last) = (bytes(pair(1))?, bytes(pair(3))?);
    let end = last.checked_add(0x100).ok_or(NameError::Target(handle))?;
    Ok(ContextDma { handle, aperture, start, end, is_block_linear: NV_DMA::KIND.is_set(flags) })
}
