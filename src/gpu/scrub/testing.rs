//! Helpers for tests with whole GPUs.

use super::channel::Channel;
use super::{EngineScrub, backing};
use crate::{GpuDriver, GpuError};
use gpuvmk_chip::addr::{HostChannel, HostVram};
use gpuvmk_pci::SharedMemory;

/// How long the engine may take.
pub const PATIENCE: std::time::Duration = super::PATIENCE;

impl EngineScrub {
    /// Its channel, and where its line of zeros is and how long.
    pub fn own_channel(&self) -> Option<(HostChannel, (HostVram, u64))> {
        match &self.channel {
            Channel::Ready(rig) => Some((rig.channel(), rig.zeros())),
            Channel::Resting(_) | Channel::None | Channel::Stuck => None,
        }
    }

    /// Pieces under way.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// The driver below.
    pub fn inner(&mut self) -> &mut dyn GpuDriver {
        &mut *self.inner
    }

    /// Gives the runlist to hardware again.
    ///
    /// # Errors
    /// See the driver's errors.
    pub fn list_again(&mut self) -> Result<(), GpuError> {
        self.relist()
    }
}

/// True if these were not touched since they were given back to the host.
pub fn is_untouched(pieces: &[SharedMemory]) -> bool {
    backing::is_untouched(pieces)
}
