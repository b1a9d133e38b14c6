//! How a guest turns itself off: ACPI's sleep control and reset registers, and the keyboard controller's
//! reset line.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use vm_superio::{I8042Device, Trigger};

use gpuvmk_frontend::kvm::BusDevice;

/// Sleep control: start, and the sleep type in bits 4:2 (ACPI 4.8.3.7).
const SLEEP_ENABLE: u8 = 1 << 5;
/// The type that the tables give for "off".
pub(super) const SLEEP_TYPE_OFF: u8 = 5;
/// Value that the tables name for the reset register.
pub(super) const RESET_VALUE: u8 = 1;

/// Why a machine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The guest turned it off.
    PowerOff,
    /// The guest reset it.
    Reset,
    /// It was stopped from outside.
    Stopped,
    /// It failed; the reason.
    Failed(String),
}

/// Ends the machine, for the guest or from outside.
#[derive(Clone, Debug, Default)]
pub struct StopVmm(Arc<(Mutex<Option<ExitReason>>, Condvar)>);

impl StopVmm {
    fn ending(&self) -> MutexGuard<'_, Option<ExitReason>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the machine. The first reason counts, with one exception: a stop from outside overrides a reset.
    pub fn end(&self, ending: ExitReason) {
        {
            let mut known = self.ending();
            if known.is_none() || (*known == Some(ExitReason::Reset) && ending == ExitReason::Stopped) {
                *known = Some(ending);
            }
        }
        self.0.1.notify_all();
    }

    /// Forgets a reset, so that the machine can start again. False when it ended for another reason.
    pub(super) fn start_again(&self) -> bool {
        let mut known = self.ending();
        let again = *known == Some(ExitReason::Reset);
        if again {
            *known = None;
        }
        again
    }

    /// The reason, once there is one.
    pub(super) fn has_ended(&self) -> bool {
        self.ending().is_some()
    }

    /// Waits for the end.
    pub(super) fn wait(&self) -> ExitReason {
        let mut ending = self.ending();
        loop {
            match &*ending {
                Some(found) => return found.clone(),
                None => ending = self.0.1.wait(ending).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// ACPI's registers: sleep control, sleep status, reset.
pub(super) struct AcpiPower(pub(super) StopVmm);

impl BusDevice for AcpiPower {
    fn read(&self, _offset: u64, data: &mut [u8]) {
        // Awake.
        data.fill(0);
    }

    fn write(&self, offset: u64, data: &[u8]) {
        match (offset, data) {
            (0, [value]) if value & SLEEP_ENABLE != 0 && value >> 2 & 7 == SLEEP_TYPE_OFF => {
                self.0.end(ExitReason::PowerOff);
            }
            (2, [RESET_VALUE]) => self.0.end(ExitReason::Reset),
            _ => {}
        }
    }
}

/// The keyboard controller's reset line.
struct ResetLine(StopVmm);

impl Trigger for ResetLine {
    type E = std::convert::Infallible;

    fn trigger(&self) -> Result<(), Self::E> {
        self.0.end(ExitReason::Reset);
        Ok(())
    }
}

/// The keyboard controller, of which only the reset line is there.
pub(super) struct Keyboard(Mutex<I8042Device<ResetLine>>);

impl Keyboard {
    pub(super) fn new(stop: StopVmm) -> Self {
        Self(Mutex::new(I8042Device::new(ResetLine(stop))))
    }
}

impl BusDevice for Keyboard {
    fn read(&self, offset: u64, data: &mut [u8]) {
        let mut device = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (data, u8::try_from(offset)) {
            ([byte], Ok(offset)) => *byte = device.read(offset),
            (data, _) => data.fill(0xff),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let mut device = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let ([byte], Ok(offset)) = (data, u8::try_from(offset)) {
            match device.write(offset, *byte) {
                Ok(()) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_powers_off_by_the_sleep_type_of_its_tables_alone() {
        let stop = StopVmm::default();
        let power = AcpiPower(stop.clone());
        power.write(0, &[SLEEP_TYPE_OFF << 2]);
        power.write(0, &[SLEEP_ENABLE | 3 << 2]);
        power.write(1, &[SLEEP_ENABLE | SLEEP_TYPE_OFF << 2]);
        power.write(2, &[2]);
        power.write(0, &[SLEEP_ENABLE | SLEEP_TYPE_OFF << 2, 0]);
        assert!(!stop.has_ended());
        power.write(0, &[SLEEP_ENABLE | SLEEP_TYPE_OFF << 2]);
        power.write(2, &[RESET_VALUE]);
        assert_eq!(stop.wait(), ExitReason::PowerOff);
    }

    #[test]
    fn machine_starts_again_after_a_reset_unless_it_was_stopped() {
        let stop = StopVmm::default();
        stop.end(ExitReason::Reset);
        stop.end(ExitReason::PowerOff);
        assert!(stop.start_again() && !stop.has_ended());
        stop.end(ExitReason::Reset);
        stop.end(ExitReason::Stopped);
        assert!(!stop.start_again() && stop.has_ended());
    }

    #[test]
    fn keyboard_controller_resets() {
        let stop = StopVmm::default();
        let keyboard = Keyboard::new(stop.clone());
        let mut status = [0xff];
        keyboard.read(4, &mut status);
        assert_eq!(status[0] & 2, 0, "its input buffer is free");
        keyboard.write(4, &[0xfe]);
        assert_eq!(stop.wait(), ExitReason::Reset);
    }
}
