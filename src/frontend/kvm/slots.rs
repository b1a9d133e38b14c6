//! Memory slots: which guest-physical addresses are memory of this process, so that accesses to them are no
//! exits.

#![allow(unsafe_code, reason = "KVM is given addresses of this process, for which there is no safe form")]

use super::KvmError;
use gpuvmk_pci::mapping::{Mapping, Reservation};
use kvm_bindings::{KVM_MEM_READONLY, kvm_userspace_memory_region};
use kvm_ioctls::{Cap, VmFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of this process that a guest may be given. It stays mapped for as long as one of these lives.
#[derive(Clone, Debug)]
pub(super) enum HostMemory {
    /// A mapping as a whole.
    Mapping(Arc<Mapping>),
    /// A range of addresses whose pages come and go.
    Reservation(Arc<Reservation>),
}

impl HostMemory {
    /// Where it lies in this process, and its bytes.
    fn range(&self) -> (usize, u64) {
        match self {
            Self::Mapping(mapping) => (mapping.address(), mapping.size()),
            Self::Reservation(reservation) => (reservation.address(), reservation.size()),
        }
    }
}

/// Numbers that are not in use.
#[derive(Debug)]
struct Numbers {
    returned: Vec<u32>,
    next: u32,
}

/// The slots of one machine.
#[derive(Debug)]
pub(super) struct Slots {
    vm: Arc<VmFd>,
    numbers: Mutex<Numbers>,
    limit: u32,
}

impl Slots {
    pub(super) fn new(vm: Arc<VmFd>) -> Arc<Self> {
        let limit = u32::try_from(vm.check_extension_int(Cap::NrMemslots)).unwrap_or(0);
        Arc::new(Self { vm, numbers: Mutex::new(Numbers { returned: Vec::new(), next: 0 }), limit })
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows `[offset, offset + size)` of `memory` to the guest at `gpa`, until the slot is dropped. Stores
    /// to a slot that is not writable are exits.
    ///
    /// # Errors
    /// The range leaves the memory, no slot is left, or KVM refuses (it overlaps another slot).
    pub(super) fn insert(
        self: &Arc<Self>,
        gpa: u64,
        memory: &HostMemory,
        offset: u64,
        size: u64,
        writable: bool,
    ) -> Result<Slot, KvmError> {
        let (start, limit) = memory.range();
        let inside = size != 0 && offset.checked_add(size).is_some_and(|end| end <= limit);
        let Some(offset) = usize::try_from(offset).ok().filter(|_| inside) else {
            let why = "the slot leaves the memory that it is to show".to_owned();
            return Err(KvmError::Place { bus: "memory", base: gpa, size, why });
        };
        let number = {
            let mut numbers = self.numbers();
            match numbers.returned.pop() {
                Some(number) => number,
                None if numbers.next < self.limit => {
                    numbers.next += 1;
                    numbers.next - 1
                }
                None => return Err(KvmError::Exhausted { what: "memory slot", limit: self.limit as usize }),
            }
        };
        let region = kvm_userspace_memory_region {
            slot: number,
            flags: if writable { 0 } else { KVM_MEM_READONLY },
            guest_phys_addr: gpa,
            memory_size: size,
            userspace_addr: (start + offset) as u64,
        };
        // SAFETY: the range lies in `memory`, which the slot keeps for as long as KVM knows the range.
        let result = unsafe { self.vm.set_user_memory_region(region) };
        if let Err(error) = result {
            self.numbers().returned.push(number);
            return Err(KvmError::call("Adding a memory slot")(error));
        }
        Ok(Slot { slots: Arc::clone(self), number, gpa, _memory: memory.clone() })
    }
}

/// Memory that the guest sees. Dropping it takes it away: later accesses are exits.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    number: u32,
    gpa: u64,
    _memory: HostMemory,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let region = kvm_userspace_memory_region {
            slot: self.number,
            flags: 0,
            guest_phys_addr: self.gpa,
            memory_size: 0,
            userspace_addr: 0,
        };
        // SAFETY: a slot of size 0 is taken away; no memory is named.
        match unsafe { self.slots.vm.set_user_memory_region(region) } {
            Ok(()) => self.slots.numbers().returned.push(self.number),
            // The number stays taken. The memory is unmapped next, and the guest faults in KVM instead of
            // reading it.
            Err(error) => log::error!("KVM does not take slot {} away: {error}", self.number),
        }
    }
}
