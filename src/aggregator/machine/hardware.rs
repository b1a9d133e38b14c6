//! The physical GPU as the machine has it: its driver, the ledger of owners, and the runlist that hardware
//! has.

use std::io;
use std::sync::Arc;

use crate::protocol::RefusalKind;
use crate::tenant::Refusal;
use crate::wire::MAX_WINDOW_PIECES;
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova, TenantId};
use gpuvmk_gpu::{GpuDriver, GpuError, GpuEvent, GpuInfo, OwnershipLedger, SpaceHandle};
use gpuvmk_pci::SharedMemory;

/// The physical GPU.
pub(super) struct Hardware {
    pub driver: Box<dyn GpuDriver>,
    /// Its properties, read once from the driver.
    pub info: GpuInfo,
    ledger: Option<Arc<dyn OwnershipLedger>>,
    /// The runlist that was committed last.
    committed: Vec<HostChannel>,
    lost: bool,
    /// Empty between calls: its memory is used again.
    events: Vec<GpuEvent>,
}

/// The pages and table memory of several address spaces together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SpacesUsage {
    pub pages: u64,
    pub table_bytes: u64,
}

impl Hardware {
    pub fn new(driver: Box<dyn GpuDriver>, ledger: Option<Arc<dyn OwnershipLedger>>) -> Self {
        let info = driver.info().clone();
        Self { driver, info, ledger, committed: Vec::new(), lost: false, events: Vec::new() }
    }

    /// The ledger, where the GPU has one.
    pub fn ledger(&self) -> Option<&dyn OwnershipLedger> {
        self.ledger.as_deref()
    }

    /// VRAM belongs to a tenant, or to the host.
    pub fn own_vram(&self, start: HostVram, size: u64, owner: Option<TenantId>) {
        if let Some(ledger) = &self.ledger {
            ledger.own_vram(start, size, owner);
        }
    }

    /// Records the owner of bus addresses; `None`: no owner.
    pub fn own_system(&self, start: Iova, size: u64, owner: Option<TenantId>) {
        if let Some(ledger) = &self.ledger {
            ledger.own_system(start, size, owner);
        }
    }

    /// A channel works for a tenant.
    pub fn own_channel(&self, host: HostChannel, owner: TenantId) {
        if let Some(ledger) = &self.ledger {
            ledger.own_channel(host, Some(owner));
        }
    }

    /// Destroys a channel. It has no owner afterwards.
    pub fn destroy_channel(&mut self, host: HostChannel) -> Result<(), GpuError> {
        self.driver.destroy_channel(host)?;
        if let Some(ledger) = &self.ledger {
            ledger.own_channel(host, None);
        }
        Ok(())
    }

    /// Gives hardware a runlist, if it has another.
    pub fn commit_runlist(&mut self, list: Vec<HostChannel>) -> Result<(), GpuError> {
        if list != self.committed {
            self.driver.commit_runlist(&list)?;
            self.committed = list;
        }
        Ok(())
    }

    /// Asks a channel to leave its engine. A failure goes to the log only.
    pub fn preempt(&mut self, channel: HostChannel) {
        if let Err(error) = self.driver.preempt_channel(channel) {
            log::error!("a preemption did not reach the physical GPU: {error}");
        }
    }

    /// Tells hardware of new work. A failure goes to the log only; false then.
    pub fn ring(&mut self, channel: HostChannel) -> bool {
        let rung = self.driver.doorbell(channel);
        if let Err(error) = &rung {
            log::error!("a doorbell did not reach the physical GPU: {error}");
        }
        rung.is_ok()
    }

    /// The pages and table memory of address spaces together. One that is gone counts as empty.
    pub fn usage(&self, spaces: impl IntoIterator<Item = SpaceHandle>) -> SpacesUsage {
        let usages = spaces.into_iter().filter_map(|space| self.driver.space_usage(space).ok());
        usages.fold(SpacesUsage::default(), |sum, usage| SpacesUsage {
            pages: sum.pages.saturating_add(usage.pages),
            table_bytes: sum.table_bytes.saturating_add(usage.table_bytes),
        })
    }

    /// A partition as files that its tenant can map.
    pub fn share_window(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, Refusal> {
        let window = self.driver.share_vram(start, size)?;
        let shared = window.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.size));
        if shared != size {
            let error =
                io::Error::other(format!("{shared:#x} of {size:#x} bytes of the partition were shared"));
            return Err(GpuError::Io(error).into());
        }
        if window.len() > MAX_WINDOW_PIECES {
            return Err(Refusal::new(
                RefusalKind::Exhausted,
                format!(
                    "{} MiB of VRAM are {} pieces; at most {MAX_WINDOW_PIECES} fit in a message",
                    size >> 20,
                    window.len()
                ),
            ));
        }
        Ok(window)
    }

    /// The events that hardware reported since the last call. The caller gives the vector back by
    /// [`Hardware::reuse`].
    pub fn take_events(&mut self) -> Vec<GpuEvent> {
        let mut events = std::mem::take(&mut self.events);
        self.driver.take_events(&mut events);
        events
    }

    /// Keeps the memory of events that were dealt with.
    pub fn reuse(&mut self, mut events: Vec<GpuEvent>) {
        events.clear();
        self.events = events;
    }

    pub const fn is_lost(&self) -> bool {
        self.lost
    }

    /// The GPU is gone. True the first time.
    pub const fn set_lost(&mut self) -> bool {
        !std::mem::replace(&mut self.lost, true)
    }
}
