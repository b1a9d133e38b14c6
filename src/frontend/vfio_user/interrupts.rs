//! Where the function's interrupts go: eventfds that the client has given.
//!
//! INTx is a level on the function's side and an event on the client's: when the line rises it is signalled
//! and masks itself; when the client unmasks it (the guest has ended the interrupt) and the line is still up,
//! it is signalled again. An MSI vector is signalled once for each message. A message that comes before its
//! eventfd is kept, as one, until the eventfd is there: the guest may enable MSI a moment before the client
//! has told us where to send.
//!
//! Writes never block: descriptors are made non-blocking when they arrive, and a counter that is full already
//! says what the write would.

use super::sys;
use crate::pci::InterruptSink;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// One vector's way out.
#[derive(Debug, Default)]
struct Vector {
    event: Option<File>,
    /// Fired while there was no eventfd.
    pending: bool,
}

impl Vector {
    fn signal(&mut self) {
        match &mut self.event {
            // A full counter or a closed other end: the client has its event, or wants none.
            Some(event) => drop(event.write(&1u64.to_ne_bytes())),
            None => self.pending = true,
        }
    }

    fn assign(&mut self, event: Option<OwnedFd>) {
        self.event = event.map(File::from);
        if self.event.is_some() && std::mem::take(&mut self.pending) {
            self.signal();
        }
    }
}

#[derive(Debug, Default)]
struct Line {
    event: Option<File>,
    /// Level that the function holds.
    asserted: bool,
    /// Signalled and not unmasked since, or masked by the client.
    masked: bool,
}

impl Line {
    /// Signals the line if it is up and may be.
    fn update(&mut self) {
        if self.asserted
            && !self.masked
            && let Some(event) = &mut self.event
        {
            self.masked = true;
            drop(event.write(&1u64.to_ne_bytes()));
        }
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
        self.with(|state| {
            state.line.event = event.map(File::from);
            state.line.masked = false;
            state.line.update();
        });
    }

    /// Masks the line.
    pub(super) fn mask_intx(&self) {
        self.with(|state| state.line.masked = true);
    }

    /// Unmasks the line, and signals it again if it is still up.
    pub(super) fn unmask_intx(&self) {
        self.with(|state| {
            state.line.masked = false;
            state.line.update();
        });
    }

    /// Signals the line's eventfd whatever its level: a client tests its wiring.
    pub(super) fn trigger_intx(&self) {
        self.with(|state| {
            if let Some(event) = &mut state.line.event {
                drop(event.write(&1u64.to_ne_bytes()));
            }
        });
    }

    /// Sets or takes away the eventfd of one vector.
    pub(super) fn set_msi_event(&self, vector: u32, event: Option<OwnedFd>) {
        self.with_vector(vector, |place| place.assign(event));
    }

    /// Takes every MSI eventfd away and forgets kept messages.
    pub(super) fn disable_msi(&self) {
        self.with(|state| state.vectors.iter_mut().for_each(|vector| *vector = Vector::default()));
    }

    /// Signals one vector.
    pub(super) fn trigger_msi(&self, vector: u32) {
        self.with_vector(vector, Vector::signal);
    }

    fn with_vector(&self, vector: u32, change: impl FnOnce(&mut Vector)) {
        self.with(|state| {
            let index = usize::try_from(vector).ok();
            if let Some(place) = index.and_then(|index| state.vectors.get_mut(index)) {
                change(place);
            }
        });
    }

    /// Closes every eventfd: the client is gone.
    pub(super) fn close(&self) {
        self.with(|state| {
            state.line.event = None;
            state.vectors.iter_mut().for_each(|vector| *vector = Vector::default());
        });
    }

    /// Checks a descriptor that a client says is an eventfd, and makes it non-blocking.
    pub(super) fn check_event(event: &OwnedFd) -> Result<(), super::refusal::Refusal> {
        use super::refusal::Refusal;
        use std::os::fd::AsFd;
        if !sys::is_anonymous(event.as_fd()).map_err(Refusal::InterruptSetUp)? {
            return Err(Refusal::NotAnEventFd);
        }
        sys::set_nonblocking(event.as_fd()).map_err(Refusal::InterruptSetUp)
    }
}

impl InterruptSink for FrontendInterrupts {
    fn set_intx(&self, asserted: bool) {
        self.with(|state| {
            state.line.asserted = asserted;
            state.line.update();
        });
    }

    fn fire_msi(&self, vector: u16) {
        self.trigger_msi(vector.into());
    }
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

    #[test]
    fn only_kernel_objects_pass_for_eventfds() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        let (pipe, _writer) = std::io::pipe().unwrap();

        assert!(FrontendInterrupts::check_event(&file).is_err());
        assert!(FrontendInterrupts::check_event(&OwnedFd::from(pipe)).is_err());
        assert!(FrontendInterrupts::check_event(&event().1).is_ok());
    }
}
