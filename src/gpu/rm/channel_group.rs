//! A channel group of the NVIDIA driver. Its channels have a time slice together, and one graphics context:
//! the driver gives channels that name no context share the group's own.

use std::sync::Arc;

use super::abi::Handle;
use super::abi::classes::{GroupParams, KEPLER_CHANNEL_GROUP_A};
use super::abi::controls::{GroupPreempt, GroupSchedule, GroupTimeslice};
use super::device::Device;
use super::error::RmError;

/// How long a look at a preemption may take, in microseconds.
const LOOK_MICROS: u32 = 50;

/// A group; each of its channels has a clone, and the last one takes it away.
#[derive(Clone, Debug)]
pub struct ChannelGroup {
    handle: Arc<Handle>,
}

impl ChannelGroup {
    /// A new group without channels.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(device: &mut Device, space: Handle, engine: u32) -> Result<Self, RmError> {
        let mut params = GroupParams { space, engine, ..Default::default() };
        let handle = device.client.alloc(device.device, KEPLER_CHANNEL_GROUP_A, &mut params)?;
        Ok(Self { handle: Arc::new(handle) })
    }

    /// The driver's handle.
    pub fn handle(&self) -> Handle {
        *self.handle
    }

    /// One channel less: the driver's object goes with the last one.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn leave(&self, device: &mut Device) -> Result<(), RmError> {
        if Arc::strong_count(&self.handle) > 1 { Ok(()) } else { device.client.free(self.handle()) }
    }

    /// Gives it the time slice of the device's groups. It has one of the driver's own before.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn set_timeslice(&self, device: &Device) -> Result<(), RmError> {
        device.client.control(self.handle(), &mut GroupTimeslice { micros: device.timeslice.micros() })
    }

    /// Puts its channels on their runlist, and enables all of them.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn schedule(&self, device: &Device) -> Result<(), RmError> {
        device.client.control(self.handle(), &mut GroupSchedule { enable: 1, ..Default::default() })
    }

    /// Tells it to leave its engine, if it is there, and does not wait for that.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn begin_preemption(&self, device: &Device) -> Result<(), RmError> {
        device.client.control(self.handle(), &mut GroupPreempt::default())
    }

    /// True if it has left: the same call again, with as little patience as can be.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn is_preempted(&self, device: &Device) -> Result<bool, RmError> {
        let mut params =
            GroupPreempt { wait: 1, manual_timeout: 1, pad: [0; 2], timeout_micros: LOOK_MICROS };
        match device.client.control(self.handle(), &mut params) {
            Ok(()) => Ok(true),
            Err(error) if error.status().is_some_and(super::is_timeout) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
