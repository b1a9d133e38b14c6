//! Interrupt lines: pins of the I/O APIC that functions may share, each asserted while one of them asserts
//! it.

use kvm_ioctls::VmFd;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many functions assert each pin.
#[derive(Debug, Default)]
struct Asserted(BTreeMap<u32, u32>);

impl Asserted {
    /// One more function asserts `pin`, or one less; what the pin is then, if that is another.
    fn change(&mut self, pin: u32, more: bool) -> Option<bool> {
        let count = self.0.entry(pin).or_default();
        let before = *count > 0;
        *count = if more { count.saturating_add(1) } else { count.saturating_sub(1) };
        let after = *count > 0;
        (before != after).then_some(after)
    }
}

/// The lines of a machine.
#[derive(Debug)]
pub(super) struct Lines {
    vm: Arc<VmFd>,
    asserted: Mutex<Asserted>,
}

impl Lines {
    pub(super) fn new(vm: Arc<VmFd>) -> Self {
        Self { vm, asserted: Mutex::default() }
    }
}

/// One function's end of a line.
#[derive(Debug)]
pub(super) struct Line {
    lines: Arc<Lines>,
    pin: u32,
    asserted: Mutex<bool>,
}

impl Line {
    pub(super) fn new(lines: Arc<Lines>, pin: u32) -> Self {
        Self { lines, pin, asserted: Mutex::new(false) }
    }

    /// The function asserts it or not.
    pub(super) fn set(&self, asserted: bool) {
        let mut own = self.asserted.lock().unwrap_or_else(PoisonError::into_inner);
        if *own == asserted {
            return;
        }
        *own = asserted;
        // Held until KVM knows, so that it hears of changes in their order.
        let mut all = self.lines.asserted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(level) = all.change(self.pin, asserted)
            && let Err(error) = self.lines.vm.set_irq_line(self.pin, level)
        {
            log::warn!("KVM does not take interrupt line {}: {error}", self.pin);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_is_asserted_until_the_last_function_lets_go() {
        let mut pins = Asserted::default();
        assert_eq!(pins.change(16, true), Some(true));
        assert_eq!(pins.change(16, true), None);
        assert_eq!(pins.change(17, true), Some(true), "another pin");
        assert_eq!(pins.change(16, false), None, "the other function still asserts it");
        assert_eq!(pins.change(16, false), Some(false));
        assert_eq!(pins.change(16, false), None);
    }
}
