//! One channel of the NVIDIA driver: its channel group, which gives it a time slice and makes it preemptible,
//! the channel, its error notifier, and its work token.
//!
//! Ring and USERD are wherever the caller says: a guest's channel has the guest's own, and the GPU fetches
//! them itself. Nothing here ever reads them.

use super::abi::Handle;
use super::abi::classes::{
    ChannelParams, Class, CopyParams, GroupParams, KEPLER_CHANNEL_GROUP_A, MemoryParams, NV01_MEMORY_SYSTEM,
    Role,
};
use super::abi::controls::{GroupPreempt, GroupSchedule, GroupTimeslice, WorkSubmitToken};
use super::abi::flags::{OWNER, alloc, attr};
use super::device::Device;
use super::error::RmError;
use super::kernel::Node;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_pci::mapping::Mapping;

/// `NVOS32_TYPE_NOTIFIER`.
const TYPE_NOTIFIER: u32 = 13;

/// Where `NvNotification` has its error number, and its status.
const NOTIFICATION_INFO32: u64 = 8;
const NOTIFICATION_STATUS: u64 = 14;

/// Time slice of every channel: how long another one on the same engine waits for it.
const TIMESLICE_MICROS: u64 = 1000;

/// How long a look at a preemption may take, in microseconds.
const LOOK_MICROS: u32 = 50;

/// The parameters of a channel.
#[derive(Clone, Copy, Debug)]
pub struct NewChannel {
    /// Its class.
    pub class: Class,
    /// Handle of the address space.
    pub space: Handle,
    /// `NV2080_ENGINE_TYPE` of the runlist.
    pub engine: u32,
    /// Virtual address of its ring.
    pub gpfifo: u64,
    /// Number of entries.
    pub entries: u32,
    /// Memory with its USERD.
    pub userd: Handle,
    /// Offset of USERD in that memory, in bytes.
    pub userd_offset: u64,
}

/// The engine that a class is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// On the graphics engine.
    Graphics(Class),
    /// On a copy engine.
    Copy(Class),
}

/// The classes of `classes` that tenants may have: by number, nothing else is ever passed on.
pub fn allowed(classes: &[Class], class: u32) -> Option<Allowed> {
    let class = *classes.iter().find(|known| known.number == class)?;
    match class.role {
        Role::Copy => Some(Allowed::Copy(class)),
        Role::ThreeD | Role::Compute | Role::TwoD | Role::InlineToMemory => Some(Allowed::Graphics(class)),
        _ => None,
    }
}

/// A channel of the NVIDIA driver, with its group.
#[derive(Debug)]
pub struct RmChannel {
    group: Handle,
    channel: Handle,
    notifier: Handle,
    notifications: Mapping,
    /// Known once it is scheduled: before, the driver has no runlist for it.
    token: Option<u32>,
}

impl RmChannel {
    /// A new channel, on no runlist.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(device: &mut Device, new: &NewChannel) -> Result<Self, RmError> {
        let mut params = MemoryParams {
            owner: OWNER,
            kind: TYPE_NOTIFIER,
            flags: alloc::NO_MAP,
            attr: attr::SYSTEM | attr::CONTIGUOUS | attr::PAGE_4K | attr::CACHED,
            size: PAGE_SIZE,
            limit: PAGE_SIZE - 1,
            ..Default::default()
        };
        let notifier = device.client.alloc(device.device, NV01_MEMORY_SYSTEM, &mut params)?;
        let made = Self::with_notifier(device, new, notifier);
        if made.is_err() {
            device.client.free(notifier)?;
        }
        made
    }

    fn with_notifier(device: &mut Device, new: &NewChannel, notifier: Handle) -> Result<Self, RmError> {
        let notifications = device.client.cpu_mapping(
            Node::Control,
            device.device,
            notifier,
            PAGE_SIZE,
            "a channel's error notifier",
        )?;
        let mut params = GroupParams { space: new.space, engine: new.engine, ..Default::default() };
        let group = device.client.alloc(device.device, KEPLER_CHANNEL_GROUP_A, &mut params)?;
        match Self::in_group(device, new, group, notifier) {
            Ok(channel) => Ok(Self { group, channel, notifier, notifications, token: None }),
            Err(error) => {
                device.client.free(group)?;
                Err(error)
            }
        }
    }

    fn in_group(
        device: &mut Device,
        new: &NewChannel,
        group: Handle,
        notifier: Handle,
    ) -> Result<Handle, RmError> {
        // One entry for each subdevice; there is one.
        let none = Handle::NONE;
        let mut params = ChannelParams {
            error: notifier,
            gpfifo: new.gpfifo,
            entries: new.entries,
            userd: [new.userd, none, none, none, none, none, none, none],
            userd_offset: [new.userd_offset, 0, 0, 0, 0, 0, 0, 0],
            engine: new.engine,
            ..Default::default()
        };
        let channel = device.client.alloc(group, new.class, &mut params)?;
        device.client.control(group, &mut GroupTimeslice { micros: TIMESLICE_MICROS })?;
        Ok(channel)
    }

    /// Takes it away.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn destroy(&mut self, device: &mut Device) -> Result<(), RmError> {
        device.client.free(self.channel)?;
        device.client.free(self.group)?;
        device.client.free(self.notifier)
    }

    /// The driver's handle.
    pub fn handle(&self) -> Handle {
        self.channel
    }

    /// Group, channel and notifier.
    pub fn objects(&self) -> [Handle; 3] {
        [self.group, self.channel, self.notifier]
    }

    /// The token to write to the doorbell; `None` before the channel was scheduled.
    pub fn token(&self) -> Option<u32> {
        self.token
    }

    /// Makes an object of a copy class for an engine.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn copy_object(&self, device: &mut Device, class: Class, engine: u32) -> Result<Handle, RmError> {
        device.client.alloc(self.channel, class, &mut CopyParams { version: 1, engine })
    }

    /// Makes an object of a graphics class.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn graphics_object(&self, device: &mut Device, class: Class) -> Result<Handle, RmError> {
        device.client.alloc_plain(self.channel, class)
    }

    /// Puts it on its runlist.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn schedule(&mut self, device: &Device) -> Result<(), RmError> {
        let mut params = GroupSchedule { enable: 1, ..Default::default() };
        device.client.control(self.group, &mut params)?;
        let mut token = WorkSubmitToken::default();
        device.client.control(self.channel, &mut token)?;
        self.token = Some(token.token);
        Ok(())
    }

    /// Tells it to leave its engine, if it is there, and does not wait for that.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn begin_preemption(&self, device: &Device) -> Result<(), RmError> {
        device.client.control(self.group, &mut GroupPreempt::default())
    }

    /// True if it has left: the same call again, with as little patience as can be.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn is_preempted(&self, device: &Device) -> Result<bool, RmError> {
        let mut params =
            GroupPreempt { wait: 1, manual_timeout: 1, pad: [0; 2], timeout_micros: LOOK_MICROS };
        match device.client.control(self.group, &mut params) {
            Ok(()) => Ok(true),
            Err(error) if error.status().is_some_and(super::is_timeout) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The error that stopped it, if one did: a number of `ROBUST_CHANNEL_*`.
    pub fn error(&self) -> Option<u32> {
        let mut status = [0; 2];
        self.notifications.read(NOTIFICATION_STATUS, &mut status).ok()?;
        // The driver writes the status last.
        if u16::from_le_bytes(status) == 0 {
            return None;
        }
        self.notifications.read_u32(NOTIFICATION_INFO32).ok()
    }
}
