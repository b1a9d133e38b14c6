//! Memory of the executor: that for the host's own use, and tenants' memory while it is zeroed.

use super::Executor;
use super::channels::HOST_VRAM;
use gpuvmk_backend::Backend;
use gpuvmk_chip::addr::HostVram;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_gpu::scrub::ScrubReport;
use gpuvmk_gpu::{GpuError, OwnMemory, Scrub, Scrubber};

impl Executor {
    fn check_own_memory(&self, at: HostVram, size: usize) -> Result<PhysicalAddress, GpuError> {
        let end = HostVram(self.own_next);
        if at.0 < HOST_VRAM || at.checked_add(size as u64).is_none_or(|last| last > end) {
            return Err(GpuError::Invalid(format!("{size:#x} bytes at {at} are not the host's own memory")));
        }
        Ok(PhysicalAddress { aperture: Aperture::Vram, address: at.0 })
    }

    /// Refuses what is not tenants' memory alone.
    pub(super) fn check_tenant_memory(&self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let end = self.info.tenant_vram.checked_add(self.info.tenant_vram_size);
        if start >= self.info.tenant_vram && start.checked_add(size) <= end && size > 0 {
            Ok(())
        } else {
            Err(GpuError::Invalid(format!("{size:#x} bytes at {start} are not tenant memory")))
        }
    }
}

impl OwnMemory for Executor {
    fn take(&mut self, size: u64) -> Result<HostVram, GpuError> {
        let start = self.own_next.next_multiple_of(size.max(1));
        let end = start.saturating_add(size);
        if end > self.info.tenant_vram.0 {
            return Err(GpuError::Exhausted { what: "host VRAM", limit: self.info.tenant_vram.0 });
        }
        self.core.system().memory.vram.zero(start, size)?;
        self.own_next = end;
        Ok(HostVram(start))
    }

    fn write(&mut self, at: HostVram, data: &[u8]) -> Result<(), GpuError> {
        let target = self.check_own_memory(at, data.len())?;
        self.core.write_memory(target, data).map_err(|missed| GpuError::Invalid(missed.to_string()))
    }

    fn read(&mut self, at: HostVram, data: &mut [u8]) -> Result<(), GpuError> {
        let target = self.check_own_memory(at, data.len())?;
        self.core.read_memory(target, data).map_err(|missed| GpuError::Invalid(missed.to_string()))
    }
}

impl Scrubber for Executor {
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        self.check_tenant_memory(start, size)?;
        self.core.system().memory.vram.zero(start.0, size)?;
        Ok(Scrub::Done)
    }

    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool {
        // VRAM holds only what tenants have left in it.
        let _ = (start, size);
        false
    }

    fn scrub_report(&self) -> Option<ScrubReport> {
        None
    }
}
