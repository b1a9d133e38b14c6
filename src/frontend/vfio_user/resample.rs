//! Unmasking of INTx by eventfd: KVM signals it when the guest ends the interrupt, without a message from the
//! client. A thread waits for it.

use super::interrupts::FrontendInterrupts;
use super::sys;
use crate::jail::{self, Role};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Resampler {
    quit: EventFd,
    thread: Option<JoinHandle<()>>,
}

impl Resampler {
    /// Unmasks the line of `interrupts` whenever `unmask` is signalled.
    pub(super) fn start(unmask: OwnedFd, interrupts: Arc<FrontendInterrupts>) -> io::Result<Self> {
        let quit = EventFd::new(EFD_NONBLOCK)?;
        let ears = quit.try_clone()?;
        let thread = std::thread::Builder::new().name("intx-unmask".to_owned()).spawn(move || {
            jail::enter(Role::Unmask);
            serve(&File::from(unmask), &ears, &interrupts);
        })?;
        Ok(Self { quit, thread: Some(thread) })
    }
}

fn serve(unmask: &File, quit: &EventFd, interrupts: &FrontendInterrupts) {
    while let Ok((signalled, quitting)) = sys::wait_readable(unmask.as_fd(), sys::borrow(quit)) {
        if quitting {
            return;
        }
        let mut count = [0; 8];
        let mut unmask = unmask;
        match unmask.read(&mut count) {
            Ok(8) if signalled => interrupts.unmask_intx(),
            // Somebody else has read it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Not an eventfd after all: an interrupt that is never unmasked is the client's own loss.
            _ => return,
        }
    }
}

impl Drop for Resampler {
    fn drop(&mut self) {
        let _ = self.quit.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
