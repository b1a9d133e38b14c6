//! Long work on the physical GPU, done in one call.

use super::budget::LOOK_AGAIN;
use super::{
    Budget, ChannelSpec, GpuDriver, GpuError, HostMapping, HostRange, Progress, Revocation, Scrub,
    SpaceHandle, SpaceUpdate,
};
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};

/// Methods of [`GpuDriver`] for callers that may wait. Each calls its `advance_...` method until that is
/// done.
///
/// Every driver has them, and none has its own.
pub trait GpuDriverExt: GpuDriver {
    /// [`Scrubber::advance_scrub`](super::Scrubber::advance_scrub) to its end, with a range of any size.
    ///
    /// # Errors
    /// As the `advance_...` method.
    fn scrub_vram(&mut self, start: HostVram, size: u64) -> Result<(), GpuError> {
        while !matches!(self.advance_scrub(start, size)?, Scrub::Done | Scrub::Untouched) {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// [`GpuDriver::advance_dma_unmap`] to its end.
    ///
    /// # Errors
    /// As the `advance_...` method.
    fn dma_unmap(&mut self, iova: Iova, size: u64) -> Result<(), GpuError> {
        finish(|budget| self.advance_dma_unmap(iova, size, budget))
    }

    /// [`GpuDriver::advance_destroy_space`] to its end.
    ///
    /// # Errors
    /// As the `advance_...` method.
    fn destroy_space(&mut self, space: SpaceHandle) -> Result<(), GpuError> {
        finish(|budget| self.advance_destroy_space(space, budget))
    }

    /// [`GpuDriver::advance_update`] to its end. Runs that cannot be mapped stay faults, and the rest is
    /// done.
    ///
    /// # Errors
    /// As there: the first one.
    fn update_space(
        &mut self,
        space: SpaceHandle,
        unmap: &[HostRange],
        map: &[HostMapping],
        table_budget: u64,
    ) -> Result<(), GpuError> {
        let mut update = SpaceUpdate::new(unmap, map);
        let mut unmappable = None;
        loop {
            match finish(|budget| self.advance_update(space, &mut update, table_budget, budget)) {
                Ok(()) => break,
                Err(error @ GpuError::Unmappable(_)) => {
                    unmappable.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        unmappable.map_or(Ok(()), Err)
    }

    /// [`GpuDriver::advance_channel`] to its end. It does not wait for a USERD in the host's own memory.
    ///
    /// # Errors
    /// As the `advance_...` method.
    fn create_channel(&mut self, spec: ChannelSpec) -> Result<HostChannel, GpuError> {
        loop {
            if let Some(channel) = self.advance_channel(spec)? {
                return Ok(channel);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// [`GpuDriver::advance_clear`] to its end.
    ///
    /// # Errors
    /// As the `advance_...` method.
    fn clear_space(&mut self, space: SpaceHandle) -> Result<(), GpuError> {
        finish(|budget| self.advance_clear(space, budget))
    }

    /// [`GpuDriver::advance_revoke`] to its end. Returns how many pages there were.
    ///
    /// # Errors
    /// As the `advance_...` method.
    fn revoke_system(&mut self, space: SpaceHandle, iova: Iova, size: u64) -> Result<u64, GpuError> {
        let mut revocation = Revocation::new(iova, size);
        finish(|budget| self.advance_revoke(space, &mut revocation, budget))?;
        Ok(revocation.pages)
    }
}

impl<D: GpuDriver + ?Sized> GpuDriverExt for D {}

/// Takes steps until one is the last.
fn finish(mut step: impl FnMut(&mut Budget) -> Result<Progress, GpuError>) -> Result<(), GpuError> {
    loop {
        match step(&mut Budget::unlimited())? {
            Progress::Done => return Ok(()),
            Progress::More => {}
            Progress::Waits => std::thread::sleep(LOOK_AGAIN),
        }
    }
}
