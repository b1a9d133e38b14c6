//! A configuration space under construction.

use super::CONFIG_SIZE;

/// Values and masks under construction.
pub(super) struct Draft {
    pub(super) value: Vec<u8>,
    pub(super) writable: Vec<u8>,
    /// Bits that a written 1 clears.
    pub(super) clear: Vec<u8>,
    pub(super) reset_capable: bool,
}

impl Default for Draft {
    fn default() -> Self {
        let none = || vec![0; CONFIG_SIZE];
        Self { value: none(), writable: none(), clear: none(), reset_capable: false }
    }
}

/// Stores `bytes` at `at`; offsets are layout constants or were checked, what lies outside is dropped.
pub(super) fn put(target: &mut [u8], at: usize, bytes: &[u8]) {
    for (place, byte) in target.iter_mut().skip(at).zip(bytes) {
        *place = *byte;
    }
}

impl Draft {
    pub(super) fn value16(&mut self, at: usize, value: u16) {
        put(&mut self.value, at, &value.to_le_bytes());
    }

    pub(super) fn value32(&mut self, at: usize, value: u32) {
        put(&mut self.value, at, &value.to_le_bytes());
    }

    pub(super) fn writable16(&mut self, at: usize, mask: u16) {
        put(&mut self.writable, at, &mask.to_le_bytes());
    }

    pub(super) fn writable32(&mut self, at: usize, mask: u32) {
        put(&mut self.writable, at, &mask.to_le_bytes());
    }

    pub(super) fn clear32(&mut self, at: usize, mask: u32) {
        put(&mut self.clear, at, &mask.to_le_bytes());
    }
}
