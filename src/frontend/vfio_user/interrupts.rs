//! Where the function's interrupts go: eventfds that the client has given.
//!
//! INTx is a level on the function's side and an event on the client's. When the line rises it is signalled
//! and masks itself. When the client unmasks it (the guest has ended the interrupt) and the line is still up,
//! it is signalled again. An MSI vector is signalled once for each message. Messages that come before their
//! eventfd are kept, as one, until the eventfd is there: the guest may enable MSI a moment before the client
//! has sent the eventfd.
//!
//! Writes do not block: descriptors are made non-blocking when they arrive, and a full counter has the same
//! effect as the write. But all holders of an eventfd share its flags, so a hostile client can make it
//! blocking again. Therefore each write is preceded by a check for room, and no lock is held across it. When
//! an eventfd is removed and a thread still waits in a write, the eventfd is emptied. So a client that wins
//! the race stops threads of its own device only, and only while it lives.

use super::sys;
use gpuvmk_pci::InterruptSink;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a write that does not wait can take at most, scheduling included.
const WRITING: Duration = Duration::from_millis(10);

/// An eventfd to signal, once no lock is held.
#[must_use]
struct Signal(Option<Arc<File>>);

impl Signal {
    const NONE: Self = Self(None);

    fn send(self) {
        let Some(event) = self.0 else { return };
        // A full counter or a closed other end: the client has its event, or wants none.
        if sys::has_room(event.as_fd()) {
            drop((&*event).write(&1u64.to_ne_bytes()));
        }
    }
}

/// Drops an eventfd, and frees threads that wait for room in it.
fn let_go(event: Option<Arc<File>>) {
    let Some(event) = event else { return };
    let step = WRITING / 10;
    for _ in 0..10 {
        if Arc::strong_count(&event) == 1 {
            return;
        }
        std::thread::sleep(step);
    }
    // A thread hangs in a write. (A client that keeps filling the eventfd delays its own device only.)
    while Arc::strong_count(&event) > 1 && sys::set_nonblocking(event.as_fd()).is_ok() {
        drop((&*event).read(&mut [0; 8]));
        std::thread::sleep(step);
    }
}

/// One vector's way out.
#[derive(Debug, Default)]
struct Vector {
    event: Option<Arc<File>>,
    /// Fired while there was no eventfd.
    pending: bool,
}

impl Vector {
    fn signal(&mut self) -> Signal {
        self.pending |= self.event.is_none();
        Signal(self.event.clone())
    }

    fn assign(&mut self, event: Option<OwnedFd>) -> (Option<Arc<File>>, Signal) {
        let old = std::mem::replace(&mut self.event, event.map(|event| Arc::new(File::from(event))));
        let kept = self.event.is_some() && std::mem::take(&mut self.pending);
        (old, if kept { self.signal() } else { Signal::NONE })
    }
}

#[derive(Debug, Default)]
struct Line {
    event: Option<Arc<File>>,
    /// Level that the function holds.
    asserted: bool,
    /// Signalled and not unmasked since, or masked by the client.
    masked: bool,
}

impl Line {
    /// Signals the line if it is up and may be.
    fn update(&mut self) -> Signal {
        if self.asserted && !self.masked && self.event.is_some() {
            self.masked = true;
            return Signal(self.event.clone());
        }
        Signal::NONE
    }
}

#[derive(Debug)]
struct State {
    line: Line,
    vectors: Vec<Vector>,
}

/// The interrupts of one session.
#[derive(Debug)]
pub struct FrontendInterrupts {
    state: Mutex<State>,
}

impl FrontendInterrupts {
    /// No eventfd given yet, for a function with that many MSI vectors.
    pub(super) fn new(msi_vectors: u32) -> Self {
        let vectors = (0..msi_vectors).map(|_| Vector::default()).collect();
        Self { state: Mutex::new(State { line: Line::default(), vectors }) }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the line's eventfd; a line that is up already is signalled.
    pub(super) fn set_intx_event(&self, event: Option<OwnedFd>) {
        let (old, signal) = self.with(|state| {
            let event = event.map(|event| Arc::new(File::from(event)));
            let old = std::mem::replace(&mut state.line.event, event);
            state.line.masked = false;
            (old, state.line.update())
        });
        let_go(old);
        signal.send();
    }

    /// Masks the line.
    pub(super) fn mask_intx(&self) {
        self.with(|state| state.line.masked = true);
    }

    /// Unmasks the line, and signals it again if it is still up.
    pub(super) fn unmask_intx(&self) {
        let signal = self.with(|state| {
            state.line.masked = false;
            state.line.update()
        });
        signal.send();
    }

    /// Signals the line's eventfd whatever its level: a client tests its wiring.
    pub(super) fn trigger_intx(&self) {
        self.with(|state| Signal(state.line.event.clone())).send();
    }

    /// Sets or removes the eventfd of one vector.
    pub(super) fn set_msi_event(&self, vector: u32, event: Option<OwnedFd>) {
        let Some((old, signal)) = self.with_vector(vector, |place| place.assign(event)) else { return };
        let_go(old);
        signal.send();
    }

    /// A copy of the first vector's eventfd, if there is one and another descriptor can be had.
    pub(super) fn first_msi_event(&self) -> Option<OwnedFd> {
        let event = self.with(|state| state.vectors.first().and_then(|vector| vector.event.clone()))?;
        event.try_clone().map(OwnedFd::from).ok()
    }

    /// Takes every MSI eventfd away and forgets kept messages.
    pub(super) fn disable_msi(&self) {
        self.take_vectors().into_iter().for_each(let_go);
    }

    /// Signals one vector.
    pub(super) fn trigger_msi(&self, vector: u32) {
        if let Some(signal) = self.with_vector(vector, Vector::signal) {
            signal.send();
        }
    }

    fn with_vector<T>(&self, vector: u32, change: impl FnOnce(&mut Vector) -> T) -> Option<T> {
        let index = usize::try_from(vector).ok()?;
        self.with(|state| state.vectors.get_mut(index).map(change))
    }

    fn take_vectors(&self) -> Vec<Option<Arc<File>>> {
        self.with(|state| state.vectors.iter_mut().map(|vector| std::mem::take(vector).event).collect())
    }

    /// Closes every eventfd: the client is gone.
    pub(super) fn close(&self) {
        let_go(self.with(|state| state.line.event.take()));
        self.disable_msi();
    }

    /// Checks that a client's descriptor is an eventfd, and makes it non-blocking.
    pub(super) fn check_event(event: &OwnedFd) -> Result<(), super::refusal::Refusal> {
        use super::refusal::Refusal;
        if !sys::is_anonymous(event.as_fd()).map_err(Refusal::InterruptSetUp)? {
            return Err(Refusal::NotAnEventFd);
        }
        sys::set_nonblocking(event.as_fd()).map_err(Refusal::InterruptSetUp)
    }
}

impl InterruptSink for FrontendInterrupts {
    fn set_intx(&self, asserted: bool) {
        let signal = self.with(|state| {
            state.line.asserted = asserted;
            state.line.update()
        });
        signal.send();
    }

    fn fire_msi(&self, vector: u16) {
        self.trigger_msi(vector.into());
    }

    fn message_sent(&self, _vector: u16) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{FromRawFd, IntoRawFd};
    use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

    /// An eventfd, and a copy for the device.
    #[allow(unsafe_code, reason = "the eventfd crate hands out raw descriptors only")]
    fn event() -> (EventFd, OwnedFd) {
        let event = EventFd::new(EFD_NONBLOCK).unwrap();
        let copy = event.try_clone().unwrap().into_raw_fd();
        // SAFETY: `into_raw_fd` gives ownership away.
        (event, unsafe { OwnedFd::from_raw_fd(copy) })
    }

    fn count(event: &EventFd) -> u64 {
        event.read().unwrap_or(0)
    }

    #[test]
    fn rising_line_signals_once_until_unmasked() {
        let interrupts = FrontendInterrupts::new(1);
        let (event, copy) = event();
        interrupts.set_intx_event(Some(copy));

        interrupts.set_intx(true);
        interrupts.set_intx(true);

        assert_eq!(count(&event), 1);
        interrupts.unmask_intx();
        assert_eq!(count(&event), 1, "still up: again");
        interrupts.set_intx(false);
        interrupts.unmask_intx();
        assert_eq!(count(&event), 0);
    }

    #[test]
    fn masked_line_signals_when_unmasked() {
        let interrupts = FrontendInterrupts::new(1);
        let (event, copy) = event();
        interrupts.set_intx_event(Some(copy));
        interrupts.mask_intx();

        interrupts.set_intx(true);

        assert_eq!(count(&event), 0);
        interrupts.unmask_intx();
        assert_eq!(count(&event), 1);
    }

    #[test]
    fn line_that_is_up_signals_a_new_eventfd() {
        let interrupts = FrontendInterrupts::new(1);
        let (event, copy) = event();
        interrupts.set_intx(true);

        interrupts.set_intx_event(Some(copy));

        assert_eq!(count(&event), 1);
    }

    #[test]
    fn messages_are_counted_and_early_ones_kept_as_one() {
        let interrupts = FrontendInterrupts::new(2);
        let (event, copy) = event();
        interrupts.fire_msi(1);
        interrupts.fire_msi(1);

        interrupts.set_msi_event(1, Some(copy));

        assert_eq!(count(&event), 1);
        interrupts.fire_msi(1);
        interrupts.fire_msi(1);
        interrupts.fire_msi(0);
        interrupts.fire_msi(9);
        assert_eq!(count(&event), 2);
    }

    #[test]
    fn disabling_forgets_kept_messages() {
        let interrupts = FrontendInterrupts::new(1);
        let (event, copy) = event();
        interrupts.fire_msi(0);
        interrupts.disable_msi();

        interrupts.set_msi_event(0, Some(copy));

        assert_eq!(count(&event), 0);
    }

    #[test]
    fn full_counter_does_not_block() {
        let interrupts = FrontendInterrupts::new(1);
        let (event, copy) = event();
        FrontendInterrupts::check_event(&copy).unwrap();
        event.write(u64::MAX - 1).unwrap();
        interrupts.set_msi_event(0, Some(copy));

        interrupts.fire_msi(0);

        assert_eq!(count(&event), u64::MAX - 1);
    }

    /// Makes an eventfd blocking for all who have it, as a hostile client may at any time.
    fn block(event: &EventFd) {
        let fd = sys::borrow(event);
        rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::empty()).unwrap();
    }

    #[test]
    fn full_counter_that_blocks_again_is_not_written_to() {
        let interrupts = FrontendInterrupts::new(1);
        let (message, copy) = event();
        interrupts.set_msi_event(0, Some(copy));
        let (line, copy) = event();
        interrupts.set_intx_event(Some(copy));
        for event in [&message, &line] {
            event.write(u64::MAX - 1).unwrap();
            block(event);
        }

        interrupts.fire_msi(0);
        interrupts.set_intx(true);

        interrupts.close();
    }

    #[test]
    fn who_waits_in_a_write_is_let_go_when_the_eventfd_goes() {
        let interrupts = FrontendInterrupts::new(1);
        let (client, copy) = event();
        interrupts.set_msi_event(0, Some(copy));
        client.write(u64::MAX - 1).unwrap();
        block(&client);
        let writer = interrupts.with_vector(0, |vector| vector.event.clone()).flatten().unwrap();
        let (waits, waiting) = std::sync::mpsc::channel();
        // As if the client had filled the counter between the look and the write.
        let waiter = std::thread::spawn(move || {
            waits.send(()).unwrap();
            (&*writer).write_all(&1u64.to_ne_bytes()).unwrap();
        });
        waiting.recv().unwrap();

        interrupts.close();

        waiter.join().unwrap();
    }

    #[test]
    fn only_kernel_objects_pass_for_eventfds() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let (pipe, _writer) = std::io::pipe().unwrap();

        assert!(FrontendInterrupts::check_event(&file).is_err());
        assert!(FrontendInterrupts::check_event(&OwnedFd::from(pipe)).is_err());
        assert!(FrontendInterrupts::check_event(&event().1).is_ok());
    }
}
