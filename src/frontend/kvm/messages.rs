//! Where a function's interrupts go: messages to eventfds from which KVM makes interrupts by itself (irqfd),
//! the line to a pin of the I/O APIC.
//!
//! A message that comes before the driver has set up where messages go is lost, as on the bus; one that comes
//! while its vector is masked is sent when it is not any more.
#![allow(unsafe_code, reason = "the eventfd wrapper has its descriptor by number only")]

use super::KvmError;
use super::lines::Line;
use super::routes::Routes;
use gpuvmk_pci::InterruptSink;
use gpuvmk_pci::header::Message;
use kvm_ioctls::VmFd;
use rustix::io::{ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Where the messages of a vector go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Nowhere: messages are disabled.
    Nowhere,
    /// They wait until the vector is unmasked.
    Masked,
    /// There.
    Sent(Message),
}

/// State of one vector.
#[derive(Debug)]
struct Vector {
    number: u32,
    event: EventFd,
    /// Signals are lost: messages are disabled.
    lost: bool,
    /// KVM knows the eventfd: it has a route.
    connected: bool,
}

/// The interrupts of one function.
#[derive(Debug)]
pub(super) struct Messages {
    vm: Arc<VmFd>,
    routes: Arc<Routes>,
    /// Held while KVM is told of routes.
    vectors: Mutex<Vec<Vector>>,
    /// Their eventfds.
    events: Vec<EventFd>,
    line: Option<Line>,
    sent: AtomicU64,
}

fn again(event: &EventFd) -> Result<EventFd, KvmError> {
    event.try_clone().map_err(KvmError::system("Duplicating an eventfd"))
}

fn descriptor(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open as long as the eventfd is borrowed.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// Takes signals out of an eventfd without a wait: other processes have it too, and its flags, by which
/// readers wait.
fn drain(event: &EventFd) {
    let mut count = [0; 8];
    // From where it is, as there are no places in it. An error is an eventfd that nobody has signalled.
    let _ = preadv2(descriptor(event), &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT);
}

impl Messages {
    /// For a function with that many vectors, and with a line or not.
    pub(super) fn new(
        vm: Arc<VmFd>,
        routes: Arc<Routes>,
        vectors: u32,
        line: Option<Line>,
    ) -> Result<Arc<Self>, KvmError> {
        let (vectors, mut made, mut events) = (0..vectors, Vec::new(), Vec::new());
        for _ in vectors {
            let event = EventFd::new(EFD_NONBLOCK).map_err(KvmError::system("Creating an eventfd"))?;
            events.push(again(&event)?);
            made.push(Vector { number: routes.take()?, event, lost: true, connected: false });
        }
        let vectors = Mutex::new(made);
        Ok(Arc::new(Self { vm, routes, vectors, events, line, sent: AtomicU64::new(0) }))
    }

    fn vectors(&self) -> MutexGuard<'_, Vec<Vector>> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The messages of the vectors that `which` names go where `destination` says from now on. What that asks
    /// of the function, it asks while nobody else changes routes.
    pub(super) fn route<D: Fn(u16) -> Destination>(
        &self,
        which: std::ops::Range<u16>,
        destination: impl FnOnce() -> D,
    ) -> Result<(), KvmError> {
        let mut vectors = self.vectors();
        let wanted = destination();
        for (index, vector) in (0u16..).zip(vectors.iter_mut()).filter(|(index, _)| which.contains(index)) {
            let to = wanted(index);
            if vector.lost && to != Destination::Nowhere {
                // Signals from before the driver enabled messages are dropped.
                drain(&vector.event);
            }
            vector.lost = to == Destination::Nowhere;
            match to {
                Destination::Sent(message) => {
                    self.routes.set(vector.number, Some(message))?;
                    if !vector.connected {
                        // What waits is sent now, but left in the eventfd.
                        let result = self.vm.register_irqfd(&vector.event, vector.number);
                        result.map_err(KvmError::call("Adding an irqfd"))?;
                        drain(&vector.event);
                        vector.connected = true;
                    }
                }
                Destination::Nowhere | Destination::Masked if vector.connected => {
                    let result = self.vm.unregister_irqfd(&vector.event, vector.number);
                    result.map_err(KvmError::call("Taking an irqfd away"))?;
                    vector.connected = false;
                }
                Destination::Nowhere | Destination::Masked => {}
            }
        }
        Ok(())
    }

    /// The first vector's eventfd, for another process that sends that message. Signals while messages are
    /// disabled are lost, as the function's own are.
    pub(super) fn first_event(&self) -> Option<OwnedFd> {
        let event = self.events.first()?.try_clone().ok()?;
        // SAFETY: the descriptor is the clone's, which gives it up.
        Some(unsafe { OwnedFd::from_raw_fd(event.into_raw_fd()) })
    }

    /// All vectors' eventfds, for who sends the messages.
    pub(super) fn all_events(&self) -> Result<Vec<EventFd>, KvmError> {
        self.events.iter().map(again).collect()
    }

    /// Messages sent since the start, without those that others sent and nobody has told of.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl InterruptSink for Messages {
    fn set_intx(&self, asserted: bool) {
        if let Some(line) = &self.line {
            line.set(asserted);
        }
    }

    fn fire_msi(&self, vector: u16) {
        let Some(event) = self.events.get(usize::from(vector)) else { return };
        self.sent.fetch_add(1, Ordering::Relaxed);
        // A full counter is an interrupt that waits already.
        let _ = event.write(1);
    }

    fn message_sent(&self, _vector: u16) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        for vector in self.vectors().iter() {
            if vector.connected {
                // The machine may be gone with all of its interrupts.
                let _ = self.vm.unregister_irqfd(&vector.event, vector.number);
            }
            self.routes.give_back(vector.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_taken_without_a_wait_whatever_the_eventfd_has_readers_do() {
        let event = EventFd::new(0).unwrap();
        drain(&event);
        event.write(3).unwrap();
        drain(&event);
        rustix::fs::fcntl_setfl(descriptor(&event), rustix::fs::OFlags::NONBLOCK).unwrap();
        assert!(event.read().is_err(), "signals were left");
    }
}
