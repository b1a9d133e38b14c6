//! Synchronisation objects: what `VM_BIND` and `EXEC` wait for and signal.

use std::time::Duration;

use anyhow::{Context, Result};

use super::abi::{self, Sync, SyncobjCreate, SyncobjDestroy, SyncobjWait};
use super::{Device, bytes};
use crate::sys::{self, Direction};

/// A synchronisation object; destroyed on drop.
#[derive(Debug)]
pub struct Syncobj {
    device: Device,
    handle: u32,
}

impl Syncobj {
    /// Makes one that is not signalled.
    pub fn new(device: &Device) -> Result<Self> {
        let mut argument = SyncobjCreate::default();
        device.ioctl("SYNCOBJ_CREATE", Direction::ReadWrite, abi::SYNCOBJ_CREATE, &mut argument)?;
        Ok(Self { device: device.clone(), handle: argument.handle })
    }

    /// How nouveau's ioctls name it.
    pub(super) fn sync(&self) -> Sync {
        Sync { handle: self.handle, ..Sync::default() }
    }

    /// Sleeps until it is signalled, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Result<()> {
        let end = sys::monotonic().saturating_add(limit);
        let handles = [self.handle];
        let mut argument = SyncobjWait {
            handles: bytes(handles.as_ptr().addr()),
            timeout_nsec: i64::try_from(end.as_nanos()).unwrap_or(i64::MAX),
            count_handles: 1,
            flags: abi::WAIT_ALL,
            ..SyncobjWait::default()
        };
        self.device
            .ioctl("SYNCOBJ_WAIT", Direction::ReadWrite, abi::SYNCOBJ_WAIT, &mut argument)
            .with_context(|| format!("waiting {limit:?} for a syncobj"))
    }
}

impl Drop for Syncobj {
    fn drop(&mut self) {
        let mut argument = SyncobjDestroy { handle: self.handle, pad: 0 };
        // The kernel forgets it with the open file at the latest.
        let _ =
            self.device.ioctl("SYNCOBJ_DESTROY", Direction::ReadWrite, abi::SYNCOBJ_DESTROY, &mut argument);
    }
}
