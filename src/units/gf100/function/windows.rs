//! The windows to memory: BAR1, BAR3 and PRAMIN; and the doorbells in BAR1.

use std::sync::Mutex;

use super::super::effect::WindowId;
use super::super::pbus::window_start;
use super::config::{BAR1_SIZE, PRAMIN};
use super::{Gf100Function, locked};
use crate::direct_windows::{moving_run, show_runs};
use gpuvmk_backend::{EngineBackend, WindowTables};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::gf100::{CHANNELS, ramin};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_mmio_trap::PhysicalMemory;
use gpuvmk_mmio_trap::aperture::Window;
use gpuvmk_mmio_trap::aperture::fermi::FermiTables;
use gpuvmk_pci::{DirectWindow, Region, SharedMemory};

/// The back's memory, as page walks see it.
pub(super) struct Memory<'a, B: ?Sized>(&'a B);

impl<B: EngineBackend + ?Sized> PhysicalMemory for Memory<'_, B> {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.0.read_memory(address, data).is_ok()
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        self.0.write_memory(address, data).is_ok()
    }
}

/// The BAR of a window.
const fn bar(window: WindowId) -> u8 {
    match window {
        WindowId::Bar1 => 1,
        WindowId::Bar3 => 3,
    }
}

impl<B: EngineBackend + ?Sized> Gf100Function<B> {
    pub(super) fn window(&self, window: WindowId) -> &Mutex<Window<FermiTables>> {
        match window {
            WindowId::Bar1 => &self.bar1,
            WindowId::Bar3 => &self.bar3,
        }
    }

    /// Changes both windows, and calls the watcher for one that shows other memory afterwards.
    pub(super) fn change_windows(&self, change: impl Fn(&mut Window<FermiTables>) -> bool) {
        for id in [WindowId::Bar1, WindowId::Bar3] {
            let is_other = change(&mut locked(self.window(id)));
            if is_other {
                self.tell_changed(id);
            }
        }
    }

    /// Tells those who have to know that a window may show something else.
    pub(super) fn tell_changed(&self, window: WindowId) {
        if window == WindowId::Bar3
            && let Some(windows) = self.backend.windows()
        {
            let root = locked(&self.bar3).tables().root();
            let tables = |(table, limit): (PhysicalAddress, u64)| WindowTables {
                table,
                is_root: true,
                end: limit.saturating_add(1),
            };
            windows.show_bar3(root.map(tables));
        }
        self.face.watcher().changed(bar(window));
    }

    /// Visits the memory of a region that needs no trap. In the USERD poll area loads need none.
    pub(super) fn show_window(
        &self,
        region: Region,
        offset: u64,
        size: u64,
        visit: &mut dyn FnMut(DirectWindow<'_>),
    ) {
        if self.face.is_lost() || self.face.watcher().is_hiding() {
            return;
        }
        let runs = match region {
            // A back's own window memory is mapped for good.
            Region::Bar(0) if self.backend.windows().is_none() => {
                let start = window_start(self.face.bar0_window());
                moving_run(&PRAMIN, start, offset, size).into_iter().collect()
            }
            Region::Bar(1) => locked(&self.bar1).runs(offset, size, &self.memory()),
            Region::Bar(3) => locked(&self.bar3).runs(offset, size, &self.memory()),
            _ => return,
        };
        let doorbells = self.face.doorbell_area().filter(|_| region == Region::Bar(1));
        let doorbells = doorbells.map_or(0..0, |area| {
            area..area.saturating_add(u64::from(CHANNELS).saturating_mul(ramin::USERD_SIZE))
        });
        show_runs(&*self.backend, &runs, &doorbells, visit);
    }

    pub(super) fn memory(&self) -> Memory<'_, B> {
        Memory(&*self.backend)
    }

    pub(super) fn read_window(&self, window: WindowId, offset: u64, data: &mut [u8]) {
        let result = locked(self.window(window)).read(offset, data, &self.memory());
        if let Err(fault) = result {
            data.fill(0xff);
            self.face.window_fault(window, &fault);
        }
    }

    pub(super) fn write_window(&self, window: WindowId, offset: u64, data: &[u8]) {
        let result = locked(self.window(window)).write(offset, data, &self.memory());
        match result {
            Err(fault) => self.face.window_fault(window, &fault),
            Ok(()) if window == WindowId::Bar1 => self.doorbell(offset, data),
            Ok(()) => {}
        }
    }

    /// A store to GP_PUT in the USERD poll area is a doorbell.
    pub(super) fn doorbell(&self, offset: u64, data: &[u8]) {
        let Some((channel, at)) = self.doorbell_of(offset) else { return };
        // Narrower stores are none.
        if let Some(word) = data.get(at..).and_then(|data| data.first_chunk::<4>()) {
            self.backend.doorbell(channel, u32::from_le_bytes(*word));
        }
    }

    /// The channel in whose USERD a store to BAR1 begins, and how many bytes later its GP_PUT is.
    pub(super) fn doorbell_of(&self, offset: u64) -> Option<(GuestChannel, usize)> {
        let inside = offset.checked_sub(self.face.doorbell_area()?)?;
        let channel = u16::try_from(inside / ramin::USERD_SIZE).ok().filter(|channel| *channel < CHANNELS)?;
        let at = ramin::USERD_GP_PUT.checked_sub(inside % ramin::USERD_SIZE)?;
        Some((GuestChannel(channel), usize::try_from(at).ok()?))
    }

    /// Tells the back what PRAMIN shows.
    pub(super) fn show_pramin(&self, start: PhysicalAddress) {
        if let Some(windows) = self.backend.windows() {
            windows.show_pramin((start.aperture == Aperture::Vram).then_some(start.address));
        }
    }

    pub(super) fn pramin(&self, offset: u64) -> Option<PhysicalAddress> {
        let start = window_start(self.face.bar0_window());
        let inside = offset.checked_sub(PRAMIN.start)?;
        Some(PhysicalAddress { address: start.address.checked_add(inside)?, ..start })
    }

    /// The VRAM that a range of BAR1 shows, in runs: first byte and length.
    fn vram_of_bar1(&self, region: Region, offset: u64, size: u64) -> std::io::Result<Vec<(u64, u64)>> {
        let fits = offset.checked_add(size).is_some_and(|end| end <= BAR1_SIZE);
        if region != Region::Bar(1) || !fits || size == 0 || !(offset | size).is_multiple_of(PAGE_SIZE) {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        locked(&self.bar1).vram_runs(offset, size, &self.memory())
    }

    /// Shares the VRAM that a range of BAR1 shows.
    pub(super) fn share_bar1(
        &self,
        region: Region,
        offset: u64,
        size: u64,
    ) -> std::io::Result<Vec<SharedMemory>> {
        let mut shared = Vec::new();
        for (start, length) in self.vram_of_bar1(region, offset, size)? {
            shared.extend(self.backend.share_vram(start, length)?);
        }
        Ok(shared)
    }

    /// Puts fresh memory in the place of the VRAM that a range of BAR1 shows.
    pub(super) fn renew_bar1(&self, region: Region, offset: u64, size: u64) -> std::io::Result<()> {
        let runs = self.vram_of_bar1(region, offset, size)?;
        // Windows that a front end has mapped show files that are no longer VRAM's.
        let hidden = self.face.watcher().hide();
        let renewed = runs.into_iter().try_for_each(|(start, length)| self.backend.renew_vram(start, length));
        drop(hidden);
        renewed
    }
}
