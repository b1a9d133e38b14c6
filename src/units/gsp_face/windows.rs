//! The windows to memory: BAR1, BAR2 (the bus calls it BAR3) and PRAMIN.
//!
//! PRAMIN and BAR2 show instance memory, which only the CPU writes; a back may answer their reads from a
//! copy. BAR1 shows what engines write, and is read from memory itself. Its page tables can also name the
//! page of registers that user mode maps: NVIDIA's own driver and CUDA ring there, from Hopper on.

use super::function::GspFunction;
use super::locked;
use crate::direct_windows::{moving_run, show_runs};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_mmio_trap::PhysicalMemory;
use gpuvmk_pci::{DirectWindow, Region, SharedMemory};

impl<B: GspBackend> GspFunction<B> {
    pub(super) fn read_bar1(&self, offset: u64, data: &mut [u8]) {
        let result = locked(&self.core.bar1).read(offset, data, &self.vram());
        if let Err(fault) = result {
            if let Some(register) = self.user_register(offset, data.len()) {
                return self.read_bar0(register, data);
            }
            data.fill(0xff);
            self.window_fault(1, &fault);
        }
    }

    pub(super) fn write_bar1(&self, offset: u64, data: &[u8]) {
        let result = locked(&self.core.bar1).write(offset, data, &self.vram());
        if let Err(fault) = result {
            if let Some(register) = self.user_register(offset, data.len()) {
                return self.write_bar0(register, data);
            }
            self.window_fault(1, &fault);
        }
    }

    /// The register of user mode's page that an access to BAR1 is to, if one of its entries says so: where
    /// that is in BAR0. The privileged page, at 0, has its doorbell where the user's has it.
    fn user_register(&self, offset: u64, size: usize) -> Option<u64> {
        let inside = offset % PAGE_SIZE;
        let page = offset.checked_sub(inside)?;
        let fits = inside.checked_add(size as u64).is_some_and(|end| end <= PAGE_SIZE);
        let tables = *locked(&self.core.bar1).tables();
        let named = tables.register_page(page, &self.tables()).filter(|_| fits)?;
        let user = u64::from(self.hal().doorbell.register.0) & !(PAGE_SIZE - 1);
        [0, self.hal().user_page].contains(&named).then_some(user | inside)
    }

    pub(super) fn read_bar2(&self, offset: u64, data: &mut [u8]) {
        let result = locked(&self.core.bar2).read(offset, data, &self.tables());
        if let Err(fault) = result {
            data.fill(0xff);
            self.window_fault(3, &fault);
        }
    }

    pub(super) fn write_bar2(&self, offset: u64, data: &[u8]) {
        let result = locked(&self.core.bar2).write(offset, data, &self.tables());
        if let Err(fault) = result {
            self.window_fault(3, &fault);
        }
    }

    pub(super) fn read_pramin(&self, offset: u64, data: &mut [u8]) {
        let target = self.pramin(offset);
        if !target.is_some_and(|target| self.tables().read(target, data)) {
            data.fill(0xff);
        }
    }

    pub(super) fn write_pramin(&self, offset: u64, data: &[u8]) {
        if let Some(target) = self.pramin(offset) {
            // A write without memory behind it is lost, as on the bus.
            let _ = self.tables().write(target, data);
        }
    }

    fn pramin(&self, offset: u64) -> Option<PhysicalAddress> {
        let inside = offset.checked_sub(self.hal().pramin.range().start)?;
        let start = self.pramin_start();
        Some(PhysicalAddress { address: start.address.checked_add(inside)?, ..start })
    }

    fn pramin_start(&self) -> PhysicalAddress {
        PhysicalAddress { aperture: Aperture::Vram, address: self.core.face.pramin() }
    }

    /// Visits the memory of a region that needs no trap.
    pub(super) fn show_window(
        &self,
        region: Region,
        offset: u64,
        size: u64,
        visit: &mut dyn FnMut(DirectWindow<'_>),
    ) {
        if self.core.face.is_lost() || self.core.watcher.is_hiding() {
            return;
        }
        let runs = match region {
            Region::Bar(0) => {
                let window = self.hal().pramin.range();
                moving_run(&window, self.pramin_start(), offset, size).into_iter().collect()
            }
            Region::Bar(1) => locked(&self.core.bar1).runs(offset, size, &self.vram()),
            Region::Bar(3) => locked(&self.core.bar2).runs(offset, size, &self.tables()),
            _ => return,
        };
        show_runs(&*self.backend, &runs, &(0..0), visit);
    }

    /// Shares the VRAM that a range of BAR1 shows.
    pub(super) fn share_bar1(
        &self,
        region: Region,
        offset: u64,
        size: u64,
    ) -> std::io::Result<Vec<SharedMemory>> {
        let fits = offset.checked_add(size).is_some_and(|end| end <= self.hal().pci.bar1_size);
        if region != Region::Bar(1) || !fits || size == 0 || !(offset | size).is_multiple_of(PAGE_SIZE) {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        let runs = locked(&self.core.bar1).vram_runs(offset, size, &self.vram())?;
        let mut shared = Vec::new();
        for (start, length) in runs {
            shared.extend(self.backend.share_vram(start, length)?);
        }
        Ok(shared)
    }
}
