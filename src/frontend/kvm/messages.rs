//! Where a function's interrupts go: messages to eventfds from which KVM makes interrupts by itself (irqfd),
//! the line to a pin of the I/O APIC.
//!
//! A message that comes before the driver has set up where messages go is lost, as on the bus.
#![allow(unsafe_code, reason = "the eventfd wrapper gives its descriptor up by number only")]

use super::KvmError;
use super::lines::Line;
use super::routes::Routes;
use gpuvmk_pci::InterruptSink;
use gpuvmk_pci::header::Message;
use kvm_ioctls::VmFd;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// State of one MSI vector.
#[derive(Debug)]
struct Vector {
    number: u32,
    event: EventFd,
    /// KVM knows the eventfd: it has a route.
    connected: AtomicBool,
}

/// The interrupts of one function.
#[derive(Debug)]
pub(super) struct Messages {
    vm: Arc<VmFd>,
    routes: Arc<Routes>,
    vectors: Vec<Vector>,
    line: Option<Line>,
    sent: AtomicU64,
}

impl Messages {
    /// For a function with that many vectors, and with a line or not.
    pub(super) fn new(
        vm: Arc<VmFd>,
        routes: Arc<Routes>,
        vectors: u32,
        line: Option<Line>,
    ) -> Result<Arc<Self>, KvmError> {
        let mut made = Self { vm, routes, vectors: Vec::new(), line, sent: AtomicU64::new(0) };
        for _ in 0..vectors {
            let event = EventFd::new(EFD_NONBLOCK).map_err(KvmError::system("Creating an eventfd"))?;
            let number = made.routes.take()?;
            made.vectors.push(Vector { number, event, connected: AtomicBool::new(false) });
        }
        Ok(Arc::new(made))
    }

    /// Messages go there from now on. Not to be called by two threads at a time.
    pub(super) fn route(&self, message: Option<Message>) -> Result<(), KvmError> {
        for (index, vector) in (0u16..).zip(&self.vectors) {
            let own = message.map(|message| Message { data: message.data.wrapping_add(index), ..message });
            let connected = vector.connected.load(Ordering::Relaxed);
            if connected && own.is_none() {
                let result = self.vm.unregister_irqfd(&vector.event, vector.number);
                result.map_err(KvmError::call("Taking an irqfd away"))?;
                vector.connected.store(false, Ordering::Relaxed);
            }
            self.routes.set(vector.number, own)?;
            if !connected && own.is_some() {
                // Signals from before the driver enabled messages are dropped.
                let _ = vector.event.read();
                let result = self.vm.register_irqfd(&vector.event, vector.number);
                result.map_err(KvmError::call("Adding an irqfd"))?;
                vector.connected.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The first vector's eventfd, for another process that sends that message. Signals while messages are
    /// disabled are lost, as the function's own are.
    pub(super) fn first_event(&self) -> Option<OwnedFd> {
        let event = self.vectors.first()?.event.try_clone().ok()?;
        // SAFETY: the descriptor is the clone's, which gives it up.
        Some(unsafe { OwnedFd::from_raw_fd(event.into_raw_fd()) })
    }

    /// Messages sent since the start.
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
        let Some(vector) = self.vectors.get(usize::from(vector)) else { return };
        self.sent.fetch_add(1, Ordering::Relaxed);
        // A full counter is an interrupt that waits already.
        let _ = vector.event.write(1);
    }

    fn message_sent(&self, _vector: u16) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        for vector in &self.vectors {
            if vector.connected.load(Ordering::Relaxed) {
                // The machine may be gone with all of its interrupts.
                let _ = self.vm.unregister_irqfd(&vector.event, vector.number);
            }
            self.routes.give_back(vector.number);
        }
    }
}
