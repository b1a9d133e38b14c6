//! BAR1 as this driver uses it: the poll area, USERD of each channel, and a movable window for sharing VRAM
//! with other processes.
//!
//! ```text
//! 0                     512 KiB                   1 MiB      64 MiB                    128 MiB
//! | poll area (4 KiB pages) | USERD (4 KiB pages) |   ...    | sharing window (128 KiB pages) |
//! ```
//!
//! The channels of tenants whose memory is the host's ([`super::host_backed`]) have their USERD there, and
//! show none.
//!
//! A store to the poll area is a channel's doorbell. It lands in a page of the host's own, never in USERD:
//! that is the guest's, who stores its GP_PUT there itself before it rings. A store of ours could be an older
//! one by then, and hardware that has executed the newer one already would go round the whole ring again.

use super::bus::Bus;
use super::memory::HostMemory;
use super::space::{INVALIDATE_HUB, LARGE, invalidate};
use super::tables::Table;
use crate::GpuError;
use crate::scrub::give_back;
use gpuvmk_chip::addr::{HostChannel, HostVram, PAGE_SHIFT, PAGE_SIZE};
use gpuvmk_chip::gf100::CHANNELS;
use gpuvmk_chip::gf100::mmu::{Pde, Pte, SMALL_PAGE_SHIFT};
use gpuvmk_chip::gf100::ramin::{
    BLOCK, INSTANCE_SIZE, PAGE_DIRECTORY_HI, PAGE_DIRECTORY_LO, USERD_GP_PUT, USERD_SIZE, VA_LIMIT_HI,
    VA_LIMIT_LO, target,
};
use gpuvmk_chip::gf100::regs::pbus::NV_PBUS_BAR1_BLOCK;
use gpuvmk_chip::gf100::regs::pfifo::NV_PFIFO_USERD_POLL;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_pci::{Region, SharedMemory};

/// Bytes of BAR1 that this driver translates.
const BAR1_SIZE: u64 = 128 << 20;
/// Where the sharing window begins.
const WINDOW: u64 = 64 << 20;
/// Size of BAR1 in bytes.
pub(super) const WINDOW_SIZE: u64 = 64 << 20;
/// Where the poll area begins: a page for each channel.
const POLL_AREA: u64 = 0;
/// Where the channels' USERD is seen.
const USERD_AREA: u64 = POLL_AREA + CHANNELS as u64 * USERD_SIZE;
/// NV_PFIFO_USERD_POLL: stores to the area are doorbells.
const POLL_ENABLE: u32 = NV_PFIFO_USERD_POLL::ENABLE.mask();
/// NV_PBUS_BAR1_BLOCK: addresses are virtual.
const MODE_VIRTUAL: u32 = NV_PBUS_BAR1_BLOCK::MODE_VIRTUAL.mask();

/// BAR1's page tables.
pub(super) struct Bar1 {
    directory: Table,
    small: Table,
    large: Table,
    /// VRAM address where writes to the poll area land.
    sink: u64,
}

impl Bar1 {
    /// Builds the tables and switches translation on. `sink` is a page of VRAM that is never read.
    pub(super) fn new(bus: &Bus, memory: &mut HostMemory, sink: u64) -> Result<Self, GpuError> {
        let mut directory = Table::new(memory, LARGE.directory_entries())?;
        let small = Table::new(memory, LARGE.table_entries(SMALL_PAGE_SHIFT))?;
        let large = Table::new(memory, LARGE.table_entries(LARGE.page_shift()))?;
        let entry = Pde { large: Some(large.physical()), small: Some(small.physical()) }.encode();
        directory.set_run(memory, 0, 1, |_| entry)?;
        let instance = memory.take(INSTANCE_SIZE, PAGE_SIZE)?;
        let PhysicalAddress { aperture, address } = directory.physical();
        let (low, high) = halves(address);
        memory.write_u32(instance.saturating_add(PAGE_DIRECTORY_LO), low | target(aperture))?;
        memory.write_u32(instance.saturating_add(PAGE_DIRECTORY_HI), high)?;
        let (low, high) = halves(BAR1_SIZE.saturating_sub(1));
        memory.write_u32(instance.saturating_add(VA_LIMIT_LO), low)?;
        memory.write_u32(instance.saturating_add(VA_LIMIT_HI), high)?;
        let bar1 = Self { directory, small, large, sink };
        bus.write(NV_PBUS_BAR1_BLOCK, MODE_VIRTUAL | block(memory.physical(instance))?)?;
        bar1.flush(bus)?;
        Ok(bar1)
    }

    /// Tells PFIFO where the poll area is.
    pub(super) fn enable_poll_area(bus: &Bus) -> Result<(), GpuError> {
        bus.write(NV_PFIFO_USERD_POLL, POLL_ENABLE | page_number(POLL_AREA)?)
    }

    /// Shows a channel's USERD page if it is in VRAM, and gives it a page of the poll area; or takes both
    /// away.
    pub(super) fn set_userd(
        &mut self,
        bus: &Bus,
        memory: &HostMemory,
        channel: HostChannel,
        userd: Option<PhysicalAddress>,
    ) -> Result<(), GpuError> {
        let in_vram = userd.filter(|userd| userd.aperture == Aperture::Vram);
        let shown = in_vram.map_or(0, |userd| pte(userd.address));
        let poll = userd.map_or(0, |_| pte(self.sink));
        for (area, raw) in [(POLL_AREA, poll), (USERD_AREA, shown)] {
            let index = (area >> SMALL_PAGE_SHIFT).saturating_add(channel.0.into());
            self.small.set_run(memory, index, 1, |_| raw)?;
        }
        self.flush(bus)
    }

    /// Tells hardware of new work of a channel, up to `gp_put`.
    pub(super) fn doorbell(&self, bus: &Bus, channel: HostChannel, gp_put: u32) -> Result<(), GpuError> {
        bus.write_at(Region::Bar(1), place(POLL_AREA, channel, USERD_GP_PUT), &gp_put.to_le_bytes())
    }

    /// A word of the USERD that a channel shows.
    pub(super) fn userd(&self, bus: &Bus, channel: HostChannel, offset: u64) -> Result<u32, GpuError> {
        bus.read_at(Region::Bar(1), place(USERD_AREA, channel, offset))
    }

    /// Shares `[start, start + size)` of VRAM: whole granules, piece by piece through the window.
    pub(super) fn share(
        &mut self,
        bus: &Bus,
        memory: &HostMemory,
        start: HostVram,
        size: u64,
    ) -> Result<Vec<SharedMemory>, GpuError> {
        let mut shared = Vec::new();
        let mut done: u64 = 0;
        while done < size {
            let piece = size.saturating_sub(done).min(WINDOW_SIZE);
            self.show(bus, memory, start.0.saturating_add(done), piece)?;
            let piece_shared =
                bus.shared_regions().and_then(|regions| regions.share(Region::Bar(1), WINDOW, piece));
            self.show_nothing(bus, memory, piece)?;
            shared.extend(piece_shared?);
            done = done.saturating_add(piece);
        }
        Ok(shared)
    }

    /// Puts fresh memory in the place of `[start, start + size)` of VRAM: whole granules, which must be
    /// unused.
    pub(super) fn renew(
        &mut self,
        bus: &Bus,
        memory: &HostMemory,
        start: HostVram,
        size: u64,
    ) -> Result<(), GpuError> {
        let mut done: u64 = 0;
        while done < size {
            let piece = size.saturating_sub(done).min(WINDOW_SIZE);
            self.show(bus, memory, start.0.saturating_add(done), piece)?;
            let renewed =
                bus.shared_regions().and_then(|regions| regions.renew(Region::Bar(1), WINDOW, piece));
            self.show_nothing(bus, memory, piece)?;
            renewed?;
            done = done.saturating_add(piece);
        }
        Ok(())
    }

    /// Fills VRAM with zeros: gives the pages back to the host's kernel. `granule` is the unit in which the
    /// GPU shares.
    pub(super) fn scrub(
        &mut self,
        bus: &Bus,
        memory: &HostMemory,
        start: HostVram,
        size: u64,
        granule: u64,
    ) -> Result<(), GpuError> {
        let end = start.0.saturating_add(size);
        let first = start.0 / granule * granule;
        for unit in (first..end).step_by(usize::try_from(granule).unwrap_or(usize::MAX)) {
            let from = unit.max(start.0);
            let to = unit.saturating_add(granule).min(end);
            let pieces = self.share(bus, memory, HostVram(unit), granule)?;
            give_back(&pieces, from.saturating_sub(unit), to.saturating_sub(unit))?;
        }
        Ok(())
    }

    /// Lets the window show VRAM from `start`, a multiple of the large page size.
    fn show(&mut self, bus: &Bus, memory: &HostMemory, start: u64, size: u64) -> Result<(), GpuError> {
        let shift = LARGE.page_shift();
        if !start.is_multiple_of(1 << shift) || !size.is_multiple_of(1 << shift) {
            return Err(GpuError::Invalid(format!("{size:#x} bytes at {start:#x} are no whole large pages")));
        }
        self.large.set_run(memory, WINDOW >> shift, size >> shift, |page| {
            pte(start.saturating_add(page << shift))
        })?;
        self.flush(bus)
    }

    fn show_nothing(&mut self, bus: &Bus, memory: &HostMemory, size: u64) -> Result<(), GpuError> {
        let shift = LARGE.page_shift();
        self.large.set_run(memory, WINDOW >> shift, size >> shift, |_| 0)?;
        self.flush(bus)
    }

    fn flush(&self, bus: &Bus) -> Result<(), GpuError> {
        invalidate(bus, self.directory.physical(), INVALIDATE_HUB)
    }
}

/// Place in BAR1 of a word in a channel's page of an area. Channel numbers were checked when they were given
/// out.
fn place(area: u64, channel: HostChannel, offset: u64) -> u64 {
    let page = u64::from(channel.0 % CHANNELS).saturating_mul(USERD_SIZE);
    area.saturating_add(page).saturating_add(offset)
}

fn pte(address: u64) -> u64 {
    let target = PhysicalAddress { aperture: Aperture::Vram, address };
    Pte { target, read_only: false, privileged: false, kind: 0 }.encode()
}

/// Number of the 4 KiB page at `address`, as address registers hold it.
pub(super) fn page_number(address: u64) -> Result<u32, GpuError> {
    u32::try_from(address >> PAGE_SHIFT)
        .ok()
        .filter(|page| BLOCK::PTR.get(*page) == *page)
        .ok_or_else(|| GpuError::Invalid(format!("{address:#x} does not fit an address register")))
}

/// Where a block is, as registers hold it: its page, and which memory it is in.
pub(super) fn block(at: PhysicalAddress) -> Result<u32, GpuError> {
    Ok(BLOCK::PTR.of(page_number(at.address)?) | BLOCK::TARGET.of(target(at.aperture)))
}

/// Low and high word.
pub(super) fn halves(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}
