//! The booter, played here: it reads the description of GSP's image, and completes it.
//!
//! A driver lays VRAM out itself, and computes from the description what it must save when it suspends: what
//! lies between the protected region and its ends. With real firmware these are some 130 MiB of heap. Here
//! GSP's heap is not in VRAM, so the booter moves the region's parts together, and what is left is what GSP's
//! state takes.

use std::mem::offset_of;

use gpuvmk_backend::GspBackend;
use gpuvmk_chip::gsp::wpr::{WPR_META_MAGIC, WPR_META_REVISION, WprMeta};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_gsp::abi::common::suspend::GspFwSRMeta;
use zerocopy::FromBytes;

use super::error::FalconError;
use super::fwsec::Wpr2;

/// The description of GSP's image, checked.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    address: u64,
    meta: WprMeta,
}

impl Description {
    /// A copy of what lies at a bus address.
    ///
    /// # Errors
    /// It is not all in the guest's memory, or is no description.
    pub fn read(back: &impl GspBackend, address: u64) -> Result<Self, FalconError> {
        let mut raw = [0; size_of::<WprMeta>()];
        back.read_memory(bus(address), &mut raw)
            .map_err(|_| FalconError::NoMemory { what: "the description of GSP's image", address })?;
        let refused = |why| FalconError::Description { address, why };
        let meta = WprMeta::read_from_bytes(&raw).map_err(|_| refused("too little"))?;
        if meta.magic != WPR_META_MAGIC || meta.revision != WPR_META_REVISION {
            return Err(refused("neither the description of GSP's image nor a suspended GSP"));
        }
        Ok(Self { address, meta })
    }

    /// Where the heap outside of the protected region is.
    pub fn non_wpr_heap(&self) -> u64 {
        self.meta.non_wpr_heap_offset.get()
    }

    /// Completes it, so that a driver provides `room` bytes for GSP's state when it suspends. Drivers of some
    /// versions compute that from the offsets of two heaps, drivers of others from the ends of the region.
    ///
    /// # Errors
    /// The guest's memory is gone.
    pub fn complete(&self, back: &impl GspBackend, room: u64) -> Result<(), FalconError> {
        let meta = &self.meta;
        let heap_end = meta.non_wpr_heap_offset.get().wrapping_add(meta.non_wpr_heap_size.get());
        // A driver's numbers, in its own arithmetic: small VRAM makes them wrap there, too.
        let frts_offset = heap_end.wrapping_add(room).wrapping_sub(meta.frts_size.get());
        let wpr_start = meta.wpr_end.get().wrapping_sub(room);
        for (field, value) in
            [(offset_of!(WprMeta, frts_offset), frts_offset), (offset_of!(WprMeta, wpr_start), wpr_start)]
        {
            // CAST: widening. It was all in memory when it was read.
            let address = self.address.wrapping_add(field as u64);
            back.write_memory(bus(address), &value.to_le_bytes())
                .map_err(|_| FalconError::NoMemory { what: "the description of GSP's image", address })?;
        }
        Ok(())
    }
}

/// Leaves the region where the description of a suspended GSP has room for what is the firmware's: the
/// description is at a bus address.
///
/// # Errors
/// The guest's memory is not there.
pub fn write_region(back: &impl GspBackend, address: u64, region: Wpr2) -> Result<(), FalconError> {
    let words = [region.low.to_le_bytes(), region.high.to_le_bytes()];
    internal(address)
        .and_then(|at| back.write_memory(bus(at), words.as_flattened()).ok())
        .ok_or(gone(address))
}

/// The region that [`write_region`] has left.
///
/// # Errors
/// The guest's memory is not there, or there is none.
pub fn read_region(back: &impl GspBackend, address: u64) -> Result<Wpr2, FalconError> {
    let mut words = [0; 8];
    internal(address).and_then(|at| back.read_memory(bus(at), &mut words).ok()).ok_or(gone(address))?;
    let [low, high] = words.as_chunks::<4>().0 else { return Err(gone(address)) };
    let region = Wpr2 { low: u32::from_le_bytes(*low), high: u32::from_le_bytes(*high) };
    if region.is_set() && region.is_sound() {
        Ok(region)
    } else {
        Err(FalconError::Description { address, why: "a suspended GSP without a protected region" })
    }
}

/// Where the firmware's own part of that description is.
fn internal(address: u64) -> Option<u64> {
    // CAST: widening.
    address.checked_add(offset_of!(GspFwSRMeta, internal) as u64)
}

const fn gone(address: u64) -> FalconError {
    FalconError::NoMemory { what: "the description of a suspended GSP", address }
}

/// The guest's memory at a bus address.
const fn bus(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::SystemCoherent, address }
}
