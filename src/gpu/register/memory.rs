//! Memory of the host's own: page tables, instance blocks, runlists, context images.
//!
//! It is at the bottom of VRAM, and no tenant's partition ever covers it. Where the GPU shares VRAM with this
//! process it is written through a mapping; else through PRAMIN, the 1 MiB window of BAR0, eight bytes an
//! access. That is too slow for page tables on a card: memory that is used often is in the host's RAM there,
//! and engines reach it as system memory. Only the golden context is ever read back. Everything else that
//! hardware reads has a copy in RAM.

use std::cell::Cell;
use std::sync::Arc;

use super::bus::Bus;
use super::host_backed::HostBacked;
use crate::{GpuError, OwnMemory};
use gpuvmk_chip::addr::{HostVram, PAGE_SIZE};
use gpuvmk_chip::gf100::regs::pbus::NV_PBUS_BAR0_WINDOW;
use gpuvmk_chip::gf100::regs::windows::NV_PRAMIN;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::mapping::{Mapping, MemoryError};
use gpuvmk_pci::{PciFunction, Region};

/// Offset in BAR0 of PRAMIN.
const PRAMIN: u64 = NV_PRAMIN.range().start;
/// Bytes of PRAMIN.
const PRAMIN_SIZE: u64 = NV_PRAMIN.range().end - PRAMIN;
/// The window's base is a multiple of this.
const WINDOW_GRANULE: u64 = 1 << 16;

/// The kind of memory, and how it is reached.
enum Place {
    /// VRAM, through PRAMIN, whose base is this if it is known.
    Window { bus: Bus, base: Cell<Option<u64>> },
    /// VRAM that the GPU shares.
    Mapped(Mapping),
    /// The host's, in place of VRAM.
    Ram { ram: HostBacked, function: Arc<dyn PciFunction> },
}

/// The allocator of the host's own pages. Addresses begin at 0 wherever the memory is.
pub(super) struct HostMemory {
    free: OrderedMap<u64, u64>,
    size: u64,
    place: Place,
}

impl HostMemory {
    /// VRAM `[0, size)`, reached through PRAMIN.
    pub(super) fn new(bus: Bus, size: u64) -> Self {
        Self::at(Place::Window { bus, base: Cell::new(None) }, size)
    }

    /// The host's RAM in place of VRAM `[0, size)`, for a card to which VRAM is far. Pages are locked in
    /// memory when they are taken.
    pub(super) fn in_ram(function: Arc<dyn PciFunction>, size: u64) -> Result<Self, GpuError> {
        Ok(Self::at(Place::Ram { ram: HostBacked::new(0, size)?, function }, size))
    }

    fn at(place: Place, size: u64) -> Self {
        // The first page stays free: address 0 in a table entry is then always a mistake.
        let free = OrderedMap::from([(PAGE_SIZE, size.saturating_sub(PAGE_SIZE))]);
        Self { free, size, place }
    }

    /// Reaches the memory through a mapping of the VRAM from now on.
    pub(super) fn set_mapping(&mut self, mapping: Mapping) {
        self.place = Place::Mapped(mapping);
    }

    /// Where hardware finds an address.
    pub(super) fn physical(&self, address: u64) -> PhysicalAddress {
        match &self.place {
            Place::Window { .. } | Place::Mapped(_) => PhysicalAddress { aperture: Aperture::Vram, address },
            Place::Ram { ram, .. } => {
                PhysicalAddress { aperture: Aperture::SystemCoherent, address: ram.iova(address).0 }
            }
        }
    }

    /// Takes `size` bytes (a multiple of 4 KiB) at a multiple of `alignment`, zeroed.
    pub(super) fn take(&mut self, size: u64, alignment: u64) -> Result<u64, GpuError> {
        let start = self.claim(size, alignment)?;
        self.zero(start, size)?;
        Ok(start)
    }

    /// Takes memory that holds `data`, which is whole pages. Nothing is written twice: PRAMIN is slow.
    pub(super) fn take_with(&mut self, data: &[u8]) -> Result<u64, GpuError> {
        let start = self.claim(data.len() as u64, PAGE_SIZE)?;
        Self::write(self, start, data)?;
        Ok(start)
    }

    /// Takes memory as it is, and lets hardware reach it.
    fn claim(&mut self, size: u64, alignment: u64) -> Result<u64, GpuError> {
        let found = self.free.iter().find_map(|(start, length)| {
            let aligned = start.checked_next_multiple_of(alignment)?;
            let end = aligned.checked_add(size)?;
            (end <= start.checked_add(*length)?).then_some((*start, *length, aligned))
        });
        let Some((start, length, aligned)) = found else {
            return Err(GpuError::Exhausted { what: "memory of the host's own", limit: self.size });
        };
        self.free.remove(&start);
        if aligned > start {
            self.free.insert(start, aligned.saturating_sub(start));
        }
        let (end, old_end) = (aligned.saturating_add(size), start.saturating_add(length));
        if old_end > end {
            self.free.insert(end, old_end.saturating_sub(end));
        }
        if let Place::Ram { ram, function } = &mut self.place
            && let Err(error) = ram.map_for_dma(function.as_ref(), aligned, end)
        {
            self.give_back(aligned, size);
            return Err(error);
        }
        Ok(aligned)
    }

    /// Gives back what [`Self::take`] gave.
    pub(super) fn give_back(&mut self, start: u64, size: u64) {
        let (mut start, mut size) = (start, size);
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before.saturating_add(length) == start
        {
            self.free.remove(&before);
            start = before;
            size = size.saturating_add(length);
        }
        if let Some(length) = self.free.remove(&start.saturating_add(size)) {
            size = size.saturating_add(length);
        }
        self.free.insert(start, size);
    }

    /// Free bytes.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    pub(super) fn write_u32(&self, address: u64, value: u32) -> Result<(), GpuError> {
        self.write(address, &value.to_le_bytes())
    }

    /// Writes words one after the other.
    pub(super) fn write(&self, address: u64, data: &[u8]) -> Result<(), GpuError> {
        self.check(address, data.len() as u64)?;
        let (bus, base) = match &self.place {
            Place::Window { bus, base } => (bus, base),
            Place::Mapped(memory) => return memory.write(address, data).map_err(outside),
            Place::Ram { ram, .. } => return ram.memory().write(address, data).map_err(outside),
        };
        let mut at = address;
        for word in data.chunks(8) {
            let offset = aim(bus, base, at)?;
            bus.write_at(Region::Bar(0), offset, word)?;
            at = at.saturating_add(word.len() as u64);
        }
        Ok(())
    }

    /// Reads; for what hardware itself produced.
    pub(super) fn read(&self, address: u64, data: &mut [u8]) -> Result<(), GpuError> {
        self.check(address, data.len() as u64)?;
        let (bus, base) = match &self.place {
            Place::Window { bus, base } => (bus, base),
            Place::Mapped(memory) => return memory.read(address, data).map_err(outside),
            Place::Ram { ram, .. } => return ram.memory().read(address, data).map_err(outside),
        };
        let mut at = address;
        for word in data.chunks_mut(4) {
            let offset = aim(bus, base, at)?;
            let value = bus.read_at(Region::Bar(0), offset)?.to_le_bytes();
            for (to, from) in word.iter_mut().zip(value) {
                *to = from;
            }
            at = at.saturating_add(word.len() as u64);
        }
        Ok(())
    }

    fn zero(&self, address: u64, size: u64) -> Result<(), GpuError> {
        const ZEROS: [u8; 4096] = [0; 4096];
        match &self.place {
            Place::Mapped(memory) => return memory.fill(address, size, 0).map_err(outside),
            Place::Ram { ram, .. } => return ram.memory().fill(address, size, 0).map_err(outside),
            Place::Window { .. } => {}
        }
        for page in (address..address.saturating_add(size)).step_by(ZEROS.len()) {
            self.write(page, &ZEROS)?;
        }
        Ok(())
    }

    fn check(&self, address: u64, size: u64) -> Result<(), GpuError> {
        match address.checked_add(size) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(GpuError::Invalid(format!("{size:#x} bytes at {address:#x} leave the host's memory"))),
        }
    }
}

/// Moves the window so that it shows `address`; returns the offset in BAR0.
fn aim(bus: &Bus, base: &Cell<Option<u64>>, address: u64) -> Result<u64, GpuError> {
    let wanted = address / PRAMIN_SIZE * PRAMIN_SIZE;
    if base.get() != Some(wanted) {
        let value = u32::try_from(wanted / WINDOW_GRANULE)
            .map_err(|_| GpuError::Invalid(format!("{address:#x} is beyond PRAMIN's reach")))?;
        bus.write(NV_PBUS_BAR0_WINDOW, value)?;
        base.set(Some(wanted));
    }
    Ok(PRAMIN.saturating_add(address.saturating_sub(wanted)))
}

fn outside(error: MemoryError) -> GpuError {
    GpuError::Invalid(error.to_string())
}

impl OwnMemory for HostMemory {
    fn take(&mut self, size: u64) -> Result<HostVram, GpuError> {
        Self::take(self, size, size).map(HostVram)
    }

    fn write(&mut self, at: HostVram, data: &[u8]) -> Result<(), GpuError> {
        Self::write(self, at.0, data)
    }

    fn read(&mut self, at: HostVram, data: &mut [u8]) -> Result<(), GpuError> {
        Self::read(self, at.0, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    use gpuvmk_softgpu::Core;
    use gpuvmk_units::gf100::{Gf100Config, Gf100Function};

    const SIZE: u64 = 64 * PAGE_SIZE;

    fn memory() -> HostMemory {
        let core = Core::new(64 << 20).expect("memory");
        let gpu = Gf100Function::new(Arc::new(core), Gf100Config::default()).expect("a function");
        HostMemory::new(Bus::new(Arc::new(gpu)), SIZE)
    }

    fn word(memory: &HostMemory, address: u64) -> u32 {
        let mut bytes = [0; 4];
        memory.read(address, &mut bytes).expect("memory of the host's");
        u32::from_le_bytes(bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// No two tables are ever one: each keeps what was written to it, begins zeroed to its end, and comes
        /// back.
        #[test]
        fn pieces_are_apart_zeroed_and_keep_their_content(ops in prop::collection::vec(
            (any::<bool>(), 1_u64..9, 0_u32..5, any::<prop::sample::Index>()), 1..40))
        {
            let mut memory = memory();
            let mut held: Vec<(u64, u64, u32)> = Vec::new();
            for (mark, (take, pages, alignment, index)) in (1_u32..).zip(ops) {
                if take || held.is_empty() {
                    let Ok(start) = memory.take(pages * PAGE_SIZE, PAGE_SIZE << alignment) else { continue };
                    prop_assert!(start.is_multiple_of(PAGE_SIZE << alignment) && start + pages * PAGE_SIZE <= SIZE);
                    for page in 0..pages {
                        for at in [start + page * PAGE_SIZE, start + (page + 1) * PAGE_SIZE - 4] {
                            prop_assert_eq!(word(&memory, at), 0, "not zeroed");
                            memory.write_u32(at, mark).expect("memory of the host's");
                        }
                    }
                    held.push((start, pages, mark));
                } else {
                    let (start, pages, _) = held.swap_remove(index.index(held.len()));
                    memory.give_back(start, pages * PAGE_SIZE);
                }
            }
            for (start, pages, mark) in held {
                for page in 0..pages {
                    prop_assert_eq!(word(&memory, start + page * PAGE_SIZE), mark);
                    prop_assert_eq!(word(&memory, start + (page + 1) * PAGE_SIZE - 4), mark);
                }
                memory.give_back(start, pages * PAGE_SIZE);
            }
            prop_assert_eq!(memory.free_bytes(), SIZE - PAGE_SIZE);
        }
    }
}
