//! Writes that need not stop the guest: KVM signals an eventfd for each that the function says may be late,
//! and a thread carries the write out. Each is one value at one address (ioeventfd with data match), so the
//! thread knows what was written.
//!
//! Locks: `bells`, held while doorbells are registered with KVM and while the function is asked which writes
//! may be late, and never while the function carries one out.

use super::KvmError;
use gpuvmk_jail::{self as jail, Role};
use gpuvmk_pci::{CoalescableWrite, DirectMap, PciFunction, Region};
use kvm_ioctls::{IoEventAddress, VmFd};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Most writes that are known to KVM: a machine's bus has room for a thousand devices of this kind.
const MOST: usize = 256;
/// epoll's data for the eventfd that ends the thread.
const END: u64 = u64::MAX;

/// One write that KVM knows.
#[derive(Debug)]
struct RegisteredDoorbell {
    event: EventFd,
    gpa: u64,
    /// epoll's data for it.
    number: u64,
}

#[derive(Debug, Default)]
struct Bells {
    known: BTreeMap<CoalescableWrite, RegisteredDoorbell>,
    /// Where each region is.
    places: BTreeMap<u32, u64>,
    next: u64,
}

struct Shared {
    function: Arc<dyn PciFunction>,
    vm: Arc<VmFd>,
    epoll: Epoll,
    bells: Mutex<Bells>,
    rung: AtomicU64,
}

/// The late writes of one function. Dropping it ends its thread; writes that were signalled and not carried
/// out are lost.
pub(super) struct Doorbells {
    shared: Arc<Shared>,
    end: EventFd,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doorbells").field("rung", &self.rung()).finish_non_exhaustive()
    }
}

fn event() -> Result<EventFd, KvmError> {
    EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(KvmError::system("Creating an eventfd"))
}

impl Shared {
    fn bells(&self) -> MutexGuard<'_, Bells> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, event: &EventFd, number: u64) -> Result<(), KvmError> {
        let interest = EpollEvent::new(EventSet::IN, number);
        let added = self.epoll.ctl(ControlOperation::Add, event.as_raw_fd(), interest);
        added.map_err(KvmError::system("Watching an eventfd"))
    }

    /// Has KVM know one more write.
    fn add(&self, bells: &mut Bells, write: CoalescableWrite) -> Result<(), KvmError> {
        let Some(base) = bells.places.get(&write.region.index()) else { return Ok(()) };
        let gpa = base.saturating_add(write.offset);
        let (event, number) = (event()?, bells.next);
        self.watch(&event, number)?;
        let result = self.vm.register_ioevent(&event, &IoEventAddress::Mmio(gpa), write.value);
        result.map_err(KvmError::call("Adding an ioeventfd"))?;
        bells.next = bells.next.wrapping_add(1);
        bells.known.insert(write, RegisteredDoorbell { event, gpa, number });
        Ok(())
    }

    /// Has KVM forget a write.
    fn remove(&self, write: &CoalescableWrite, bell: &RegisteredDoorbell) {
        let result = self.vm.unregister_ioevent(&bell.event, &IoEventAddress::Mmio(bell.gpa), write.value);
        if let Err(error) = result {
            log::warn!("KVM does not forget a doorbell: {error}");
        }
    }

    /// Registers the function's present doorbells with KVM.
    fn follow(&self) {
        let mut guard = self.bells();
        let bells = &mut *guard;
        let wanted = self.function.direct_map().map_or_else(Vec::new, DirectMap::coalescable_writes);
        bells.known.retain(|write, bell| {
            let stays = wanted.contains(write)
                && bells.places.get(&write.region.index()).map(|base| base.saturating_add(write.offset))
                    == Some(bell.gpa);
            if !stays {
                self.remove(write, bell);
            }
            stays
        });
        for write in wanted {
            if bells.known.len() < MOST
                && !bells.known.contains_key(&write)
                && let Err(error) = self.add(bells, write)
            {
                log::warn!("A doorbell stays trapped: {error}");
                return;
            }
        }
    }

    /// Carries out what is signalled, until the end is.
    fn serve(&self) {
        let mut events = [EpollEvent::default(); 16];
        loop {
            let count = match self.epoll.wait(-1, &mut events) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
                Err(error) => {
                    log::error!("Doorbells are not heard any more: {error}");
                    return;
                }
            };
            for event in events.iter().take(count) {
                let number = event.data();
                if number == END {
                    return;
                }
                let write = {
                    let bells = self.bells();
                    let found = bells.known.iter().find(|(_, bell)| bell.number == number);
                    // One that KVM was made to forget came too late.
                    let Some((write, bell)) = found else { continue };
                    // Only this thread reads it: if it is empty, it was taken already.
                    if bell.event.read().is_err() {
                        continue;
                    }
                    *write
                };
                self.rung.fetch_add(1, Ordering::Relaxed);
                // A write that fails is lost, as on the bus.
                let _ = self.function.write(write.region, write.offset, &write.value.to_le_bytes());
            }
        }
    }
}

impl Doorbells {
    pub(super) fn new(function: Arc<dyn PciFunction>, vm: Arc<VmFd>) -> Result<Self, KvmError> {
        let epoll = Epoll::new().map_err(KvmError::system("Creating an epoll"))?;
        let shared =
            Arc::new(Shared { function, vm, epoll, bells: Mutex::default(), rung: AtomicU64::new(0) });
        let end = event()?;
        shared.watch(&end, END)?;
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("doorbells".to_owned())
            .spawn(move || {
                jail::enter(Role::Doorbells);
                served.serve();
            })
            .map_err(KvmError::system("Starting a thread"))?;
        Ok(Self { shared, end, thread: Some(thread) })
    }

    /// A region decodes at `gpa` from now on, or not at all.
    pub(super) fn put(&self, region: Region, gpa: Option<u64>) {
        {
            let mut bells = self.shared.bells();
            match gpa {
                Some(gpa) => bells.places.insert(region.index(), gpa),
                None => bells.places.remove(&region.index()),
            };
        }
        self.shared.follow();
    }

    /// The function has named other writes.
    pub(super) fn follow(&self) {
        self.shared.follow();
    }

    /// Writes that were carried out here.
    pub(super) fn rung(&self) -> u64 {
        self.shared.rung.load(Ordering::Relaxed)
    }
}

impl Drop for Doorbells {
    fn drop(&mut self) {
        // A counter that is full ends the thread as well.
        let _ = self.end.write(1);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended.
            let _ = thread.join();
        }
        let known = std::mem::take(&mut self.shared.bells().known);
        known.iter().for_each(|(write, bell)| self.shared.remove(write, bell));
    }
}
