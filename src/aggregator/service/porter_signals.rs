//! Signals that the owner and a porter share: marks, and an eventfd that ends the porter's sleep.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::event::EventfdFlags;

use crate::event_ring::WakeHelper;

/// Marks of [`PorterSignals::marks`].
pub(super) mod mark {
    /// Orders lie in the channel.
    pub const ORDER: u32 = 1;
    /// The consumer of events waits.
    pub const EVENTS: u32 = 2;
    /// A message to the driver.
    pub const MESSAGE: u32 = 4;
    /// The connection must be closed.
    pub const CLOSE: u32 = 8;
    /// Another connection needs its place, if it is still silent.
    pub const GIVE_WAY: u32 = 16;
}

/// Signals between owner and porter.
#[derive(Debug)]
pub(super) struct PorterSignals {
    pub(super) marks: AtomicU32,
    pub(super) asleep: AtomicBool,
    /// The porter's private eventfd.
    pub(super) bell: OwnedFd,
    /// Wake-ups that cost too much.
    pub(super) dear: AtomicU64,
}

impl PorterSignals {
    pub(super) fn new() -> io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { marks: AtomicU32::new(0), asleep: AtomicBool::new(false), bell, dear: AtomicU64::new(0) })
    }

    pub(super) fn ring(&self, mark: u32) {
        self.marks.fetch_or(mark, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            // The counter is read after each sleep, and cannot be full.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// The connection is to end if it is still silent.
    pub fn give_way(&self) {
        self.ring(mark::GIVE_WAY);
    }
}

impl WakeHelper for PorterSignals {
    fn events(&self) {
        self.ring(mark::EVENTS);
    }

    fn message(&self) {
        self.ring(mark::MESSAGE);
    }
}
