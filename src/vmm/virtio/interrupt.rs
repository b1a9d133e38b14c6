//! The interrupt line of a virtio function, and the register that says what it is for. A pure model but for
//! the line itself.

use std::sync::Arc;

use gpuvmk_pci::InterruptSink;

/// The queue has used buffers.
pub(super) const QUEUE: u8 = 1 << 0;
/// The device's configuration or status is another.
pub(super) const CONFIGURATION: u8 = 1 << 1;

/// The line is asserted while a reason waits that the driver has not read.
#[derive(Default)]
pub(super) struct Interrupt {
    sink: Option<Arc<dyn InterruptSink>>,
    reasons: u8,
    disabled: bool,
    asserted: bool,
}

impl Interrupt {
    /// The line goes there from now on.
    pub(super) fn connect(&mut self, sink: Option<Arc<dyn InterruptSink>>) {
        self.sink = sink;
        self.asserted = false;
        self.follow();
    }

    /// For a reason.
    pub(super) fn raise(&mut self, reason: u8) {
        self.reasons |= reason;
        self.follow();
    }

    /// The reasons, which have been read then.
    pub(super) fn take(&mut self) -> u8 {
        let reasons = std::mem::take(&mut self.reasons);
        self.follow();
        reasons
    }

    /// True while a reason waits, whether the line may say so or not.
    pub(super) const fn is_pending(&self) -> bool {
        self.reasons != 0
    }

    /// The driver lets the line be used or not.
    pub(super) fn disable(&mut self, disabled: bool) {
        self.disabled = disabled;
        self.follow();
    }

    fn follow(&mut self) {
        let wanted = self.is_pending() && !self.disabled;
        if wanted != self.asserted
            && let Some(sink) = &self.sink
        {
            sink.set_intx(wanted);
            self.asserted = wanted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Line(Mutex<Vec<bool>>);

    impl InterruptSink for Line {
        fn set_intx(&self, asserted: bool) {
            self.0.lock().unwrap().push(asserted);
        }

        fn fire_msi(&self, _vector: u16) {}

        fn message_sent(&self, _vector: u16) {}
    }

    #[test]
    fn line_is_asserted_until_the_reasons_are_read() {
        let line = Arc::new(Line::default());
        let mut interrupt = Interrupt::default();
        interrupt.raise(QUEUE);
        interrupt.connect(Some(line.clone()));
        interrupt.raise(CONFIGURATION);
        assert_eq!(*line.0.lock().unwrap(), [true]);
        interrupt.disable(true);
        assert!(interrupt.is_pending());
        interrupt.disable(false);
        assert_eq!((interrupt.take(), interrupt.take()), (QUEUE | CONFIGURATION, 0));
        assert_eq!(*line.0.lock().unwrap(), [true, false, true, false]);
    }
}
