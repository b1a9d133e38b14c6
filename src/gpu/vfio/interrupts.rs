//! A card's interrupts: the kernel writes to an eventfd, a thread hands them on.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use vmm_sys_util::poll::PollContext;

use gpuvmk_jail::{self as jail, Role};
use gpuvmk_pci::InterruptSink;

/// The eventfds that the kernel writes to.
#[derive(Debug)]
pub(super) struct Lines {
    /// Eventfd of the MSI message.
    pub(super) message: EventFd,
    /// The bus reported an error of the card, or the kernel wants the card back, so that it can be removed.
    pub(super) going: EventFd,
}

impl Lines {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { message: event()?, going: event()? })
    }
}

fn event() -> io::Result<EventFd> {
    EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)
}

/// The thread that waits for interrupts.
#[derive(Debug)]
pub(super) struct Listener {
    stop: EventFd,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Forwards interrupts of `lines` to the sink, if one is connected. Calls `gone` once if the card goes.
    pub(super) fn start(
        lines: &Lines,
        sink: Option<Arc<dyn InterruptSink>>,
        gone: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let stop = event()?;
        let ends = [lines.message.try_clone()?, lines.going.try_clone()?, stop.try_clone()?];
        let context = PollContext::new()?;
        for (line, token) in ends.iter().zip(0u32..) {
            context.add(line, token)?;
        }
        let thread = std::thread::Builder::new()
            .name("card-interrupts".to_owned())
            .spawn(move || listen(&context, &ends, sink.as_deref(), gone))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Adding one to a counter of 64 bits that starts at 0 does not block.
        if self.stop.write(1).is_ok()
            && let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("The thread of the card's interrupts has panicked");
        }
    }
}

fn listen(
    context: &PollContext<u32>,
    [message, going, stop]: &[EventFd; 3],
    sink: Option<&dyn InterruptSink>,
    gone: impl FnOnce(),
) {
    jail::enter(Role::CardInterrupts);
    let mut gone = Some(gone);
    let fire = || {
        if let Some(sink) = sink {
            sink.fire_msi(0);
        }
    };
    loop {
        if let Err(error) = context.wait() {
            log::error!("Waiting for the card's interrupts failed: {error}");
            return;
        }
        // Not blocking: an error is that nothing came there.
        if message.read().is_ok() {
            fire();
        }
        if going.read().is_ok()
            && let Some(gone) = gone.take()
        {
            gone();
            // A thread that waits for the card must wake, and find it lost.
            fire();
        }
        if stop.read().is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl InterruptSink for Counter {
        fn set_intx(&self, _: bool) {}

        fn fire_msi(&self, vector: u16) {
            assert_eq!(vector, 0);
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn message_sent(&self, _vector: u16) {}
    }

    fn becomes(counter: &AtomicUsize, value: usize) {
        let start = Instant::now();
        while counter.load(Ordering::SeqCst) != value {
            assert!(start.elapsed() < Duration::from_secs(10), "{counter:?} instead of {value}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn messages_are_handed_on_and_a_card_goes_once() {
        let lines = Lines::new().unwrap();
        let (sink, gone) = (Arc::new(Counter::default()), Arc::new(AtomicUsize::new(0)));
        let told = Arc::clone(&gone);
        let listener = Listener::start(&lines, Some(Arc::clone(&sink) as _), move || {
            told.fetch_add(1, Ordering::SeqCst);
        });

        lines.message.write(1).unwrap();
        becomes(&sink.0, 1);
        lines.going.write(1).unwrap();
        becomes(&sink.0, 2);
        lines.going.write(1).unwrap();
        lines.message.write(1).unwrap();
        becomes(&sink.0, 3);

        assert_eq!(gone.load(Ordering::SeqCst), 1);
        drop(listener.unwrap());
        lines.message.write(1).unwrap();
        assert_eq!(sink.0.load(Ordering::SeqCst), 3);
    }
}
