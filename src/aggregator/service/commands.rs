//! Commands of other threads to the service's thread, and how they wake it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};

use gpuvmk_control_client::Status;
use rustix::event::EventfdFlags;

use super::porter::handle::FromPorter;
use crate::machine::guests::Guest;
use crate::machine::hang::Reset;
use crate::machine::settings::{EffectiveSettings, Order};
use gpuvmk_scheduler::share::Rejection;

/// A command of another thread to the service.
pub(super) enum Command {
    /// A message of a connection's porter.
    FromPorter(u32, FromPorter),
    /// Change what an operator wants changed.
    Set(Order, SyncSender<Result<EffectiveSettings, Rejection>>),
    /// Take a VM's unfinished work off.
    Reset(String, SyncSender<Result<Reset, Rejection>>),
    /// Let a VM come from now on, or no longer.
    List(String, Option<Guest>, SyncSender<Result<(), Rejection>>),
    /// Report the status.
    Status(SyncSender<Status>),
    /// End the service.
    Stop,
}

/// The sending end of the service's commands.
#[derive(Clone, Debug)]
pub(super) struct Commands {
    commands: Sender<Command>,
    wake: Arc<OwnedFd>,
    /// The thread sleeps, or is about to.
    sleeping: Arc<AtomicBool>,
}

impl Commands {
    /// With the receiving end.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<(Self, Receiver<Command>)> {
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (commands, inbox) = channel();
        Ok((Self { commands, wake, sleeping: Arc::new(AtomicBool::new(false)) }, inbox))
    }

    /// False when the service has ended.
    pub fn send(&self, command: Command) -> bool {
        let sent = self.commands.send(command).is_ok();
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // The counter is never read: there are not so many commands that it could be full.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
        sent
    }

    /// Hands the service what a connection's porter has. False when the service has ended.
    pub fn report(&self, number: u32, said: FromPorter) -> bool {
        self.send(Command::FromPorter(number, said))
    }

    /// The service's thread is about to sleep, or is awake: commands wake it only while it sleeps.
    pub fn set_sleeping(&self, sleeping: bool) {
        self.sleeping.store(sleeping, Ordering::SeqCst);
    }

    /// Readable, edge by edge, for each command that came during sleep.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
