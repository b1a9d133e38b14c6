//! Writes that only signal an eventfd: KVM signals it by itself (ioeventfd of 16 bits with data match), and
//! whoever serves the function's queues waits for it.

use super::KvmError;
use gpuvmk_pci::{PciFunction, Region, SignalledWrite};
use kvm_ioctls::{IoEventAddress, VmFd};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The signalled writes of one function.
#[derive(Debug)]
pub(super) struct Kicks {
    vm: Arc<VmFd>,
    writes: Vec<SignalledWrite>,
    /// Where each region is that decodes.
    places: Mutex<BTreeMap<u32, u64>>,
}

impl Kicks {
    pub(super) fn new(function: &dyn PciFunction, vm: Arc<VmFd>) -> Result<Self, KvmError> {
        let writes =
            function.queue_events().map_or_else(|| Ok(Vec::new()), |events| events.signalled_writes());
        let writes = writes.map_err(KvmError::system("Duplicating an eventfd"))?;
        Ok(Self { vm, writes, places: Mutex::default() })
    }

    /// A region decodes at `gpa` from now on, or not at all. Writes that KVM does not take stay trapped,
    /// where the function signals by itself.
    pub(super) fn put(&self, region: Region, gpa: Option<u64>) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = places.remove(&region.index()) {
            for write in self.of(region) {
                let address = IoEventAddress::Mmio(old.saturating_add(write.offset));
                if let Err(error) = self.vm.unregister_ioevent(&write.event, &address, write.value) {
                    log::debug!("KVM does not forget a notification: {error}");
                }
            }
        }
        let Some(gpa) = gpa else { return };
        places.insert(region.index(), gpa);
        for write in self.of(region) {
            let address = IoEventAddress::Mmio(gpa.saturating_add(write.offset));
            if let Err(error) = self.vm.register_ioevent(&write.event, &address, write.value) {
                log::warn!("Notifications stay trapped: {error}");
            }
        }
    }

    fn of(&self, region: Region) -> impl Iterator<Item = &SignalledWrite> {
        self.writes.iter().filter(move |write| write.region == region)
    }
}
