//! How long a group of channels has an engine while another one waits for it.

/// A time in microseconds, within [`Timeslice::RANGE`].
///
/// At the end of a slice the GPU changes to another group, which takes it some 0.15 ms on an H200: short
/// slices cost work, long ones make others wait. The GPU changes between two kernels: one that takes longer
/// than a slice is waited for. docs/cuda-benchmarks.md has both as measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeslice(u32);

impl Timeslice {
    /// The shortest and the longest, in microseconds.
    pub const RANGE: (u32, u32) = (500, 30_000);

    /// So many microseconds, if they are within [`Timeslice::RANGE`].
    pub const fn new(micros: u32) -> Option<Self> {
        let (shortest, longest) = Self::RANGE;
        if shortest <= micros && micros <= longest { Some(Self(micros)) } else { None }
    }

    /// In microseconds.
    pub fn micros(self) -> u64 {
        self.0.into()
    }
}

impl Default for Timeslice {
    /// 4 ms: two or four busy tenants lose 4 % together.
    fn default() -> Self {
        Self(4000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_within_their_range() {
        let micros = |micros| Timeslice::new(micros).map(Timeslice::micros);
        assert_eq!([499, 500, 30_000, 30_001].map(micros), [None, Some(500), Some(30_000), None]);
        assert_eq!(micros(4000), Some(Timeslice::default().micros()));
    }
}
