//! Unmasking of INTx by eventfd: KVM signals it when the guest ends the interrupt, without a message from the
//! client. A thread waits for it.

use super::interrupts::FrontendInterrupts;
use super::sys;
use gpuvmk_jail::{self as jail, Role};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// How often the thread is looked at until it is taken to wait for the client.
const PATIENCE: u32 = 50;
const LOOK: Duration = Duration::from_millis(1);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Resampler {
    quit: EventFd,
    /// The client's eventfd, to let the thread go that waits in a read of it.
    unmask: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Resampler {
    /// Unmasks the line of `interrupts` whenever `unmask` is signalled.
    pub(super) fn start(unmask: OwnedFd, interrupts: Arc<FrontendInterrupts>) -> io::Result<Self> {
        let quit = EventFd::new(EFD_NONBLOCK)?;
        let ears = quit.try_clone()?;
        let ours = unmask.try_clone()?;
        let thread = std::thread::Builder::new().name("intx-unmask".to_owned()).spawn(move || {
            jail::enter(Role::Unmask);
            serve(&File::from(unmask), &ears, &interrupts);
        })?;
        Ok(Self { quit, unmask: ours, thread: Some(thread) })
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
            // Another holder has read it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Not an eventfd after all: an interrupt that is never unmasked is the client's own loss.
            _ => return,
        }
    }
}

impl Drop for Resampler {
    fn drop(&mut self) {
        let _ = self.quit.write(1);
        let Some(thread) = self.thread.take() else { return };
        // The client can make its eventfd blocking again, and read it first: then the thread waits for more.
        for _ in 0..PATIENCE {
            if thread.is_finished() {
                break;
            }
            std::thread::sleep(LOOK);
        }
        while !thread.is_finished() {
            // Non-blocking for this write; if there is no room, a signal is pending already.
            if sys::set_nonblocking(self.unmask.as_fd()).is_ok() {
                let _ = rustix::io::write(&self.unmask, &1u64.to_ne_bytes());
            }
            std::thread::sleep(LOOK);
        }
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn thread_that_waits_in_a_read_ends_all_the_same() {
        let interrupts = Arc::new(FrontendInterrupts::new(1));
        let client = EventFd::new(EFD_NONBLOCK).unwrap();
        let copy = sys::borrow(&client).try_clone_to_owned().unwrap();
        // Blocking, and said to be readable when it is not: a hostile client that reads it first does the
        // same.
        rustix::fs::fcntl_setfl(&copy, rustix::fs::OFlags::empty()).unwrap();
        let quit = EventFd::new(EFD_NONBLOCK).unwrap();
        let (unmask, ears) = (File::from(copy.try_clone().unwrap()), quit.try_clone().unwrap());
        let thread = std::thread::spawn(move || {
            drop((&unmask).read(&mut [0; 8]));
            serve(&unmask, &ears, &interrupts);
        });

        drop(Resampler { quit, unmask: copy.try_clone().unwrap(), thread: Some(thread) });

        assert_eq!((&File::from(copy)).write(&1u64.to_ne_bytes()).unwrap(), 8);
    }
}
