//! Fuzzer's bytes as numbers, choices and pieces. Never fails: what is not there reads as zero.

use arbitrary::Unstructured;

/// The bytes that are left.
#[derive(Debug)]
pub struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    /// All of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// True while bytes are left.
    pub fn more(&self) -> bool {
        !self.0.is_empty()
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// A bit of a byte.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// A number below `limit`, of a byte; 0 where there is none.
    pub fn below(&mut self, limit: u8) -> u8 {
        self.u8().checked_rem(limit).unwrap_or(0)
    }

    /// One of `choices`, which are not none and at most 256.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let at = usize::from(self.u8()).checked_rem(choices.len()).expect("there are choices");
        choices[at]
    }

    /// A number like one of `bases`: itself, a little beside it, whole pages beside it; or any number.
    pub fn near(&mut self, bases: &[u64]) -> u64 {
        let how = self.u8();
        if how & 7 == 7 {
            return self.u64();
        }
        let base = self.pick(bases);
        let signed = u64::from(self.u8()).wrapping_sub(u64::from(how & 0x80));
        match how & 7 {
            0..=2 => base,
            3 => base.wrapping_add(signed),
            4 => base.wrapping_add(signed << 3),
            5 => base.wrapping_add(signed << 12),
            _ => base.wrapping_add(u64::from(self.u16()) << 8),
        }
    }

    /// Up to `most` bytes.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let size = usize::from(self.u8()).min(most).min(self.0.len());
        self.0.bytes(size).unwrap_or_default()
    }
}
