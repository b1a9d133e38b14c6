//! What methods of the compute class set for launches.

use std::ops::Range;

use gpuvmk_chip::gh100::methods::compute as m;

/// Methods whose data is kept, in the order in which it is saved.
const KEPT: [u16; SAVED_WORDS] = [
    m::SEND_PCAS_A,
    m::SET_SHADER_SHARED_MEMORY_WINDOW_A,
    m::SET_SHADER_SHARED_MEMORY_WINDOW_B,
    m::SET_SHADER_LOCAL_MEMORY_WINDOW_A,
    m::SET_SHADER_LOCAL_MEMORY_WINDOW_B,
    m::SET_SHADER_LOCAL_MEMORY_A,
    m::SET_SHADER_LOCAL_MEMORY_B,
    m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A,
    m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B,
    m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C,
    m::SET_INLINE_QMD_ADDRESS_A,
    m::SET_INLINE_QMD_ADDRESS_B,
];

/// Those that are set up once, for all channels that share a graphics context: windows and local memory. What
/// the next launch is of is a channel's own.
pub(super) const SETUP: Range<usize> = 1..10;

/// Number of words of the saved state.
pub(super) const SAVED_WORDS: usize = 12;

/// State of the class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    words: [u32; SAVED_WORDS],
}

impl State {
    /// Keeps the data of a method. False if it is none of those that are kept.
    pub(super) fn set(&mut self, method: u16, data: u32) -> bool {
        let place = KEPT.iter().zip(&mut self.words).find(|(kept, _)| **kept == method);
        match place {
            Some((_, word)) => {
                *word = data;
                true
            }
            None => false,
        }
    }

    fn get(&self, method: u16) -> u32 {
        KEPT.iter().zip(&self.words).find(|(kept, _)| **kept == method).map_or(0, |(_, word)| *word)
    }

    /// Virtual address of the QMD that the next signal is about.
    pub(super) fn qmd(&self) -> u64 {
        u64::from(self.get(m::SEND_PCAS_A)) << 8
    }

    /// Virtual address and number of words of the QMD that comes in the command stream.
    pub(super) fn inline_qmd(&self) -> (u64, u16) {
        let upper = self.get(m::SET_INLINE_QMD_ADDRESS_A);
        let lower = self.get(m::SET_INLINE_QMD_ADDRESS_B);
        let address = m::SET_INLINE_QMD_ADDRESS_A::QMD_ADDRESS_SHIFTED8_UPPER.get(upper);
        let large = m::SET_INLINE_QMD_ADDRESS_A::INLINE_SIZE.is_set(upper);
        (u64::from(address) << 40 | u64::from(lower) << 8, if large { 96 } else { 64 })
    }

    fn window(&self, upper: u16, lower: u16) -> u64 {
        u64::from(m::WINDOW_UPPER::BASE_ADDRESS.get(self.get(upper))) << 32 | u64::from(self.get(lower))
    }

    /// First generic address of shared memory.
    pub(super) fn shared_window(&self) -> u64 {
        self.window(m::SET_SHADER_SHARED_MEMORY_WINDOW_A, m::SET_SHADER_SHARED_MEMORY_WINDOW_B)
    }

    /// First generic address of local memory.
    pub(super) fn local_window(&self) -> u64 {
        self.window(m::SET_SHADER_LOCAL_MEMORY_WINDOW_A, m::SET_SHADER_LOCAL_MEMORY_WINDOW_B)
    }

    /// Virtual address of the memory that the driver gave for threads' local memory, and its bytes.
    pub(super) fn local_memory(&self) -> (u64, u64) {
        let upper = m::ADDRESS_UPPER::ADDRESS.get(self.get(m::SET_SHADER_LOCAL_MEMORY_A));
        let address = u64::from(upper) << 32 | u64::from(self.get(m::SET_SHADER_LOCAL_MEMORY_B));
        let upper = self.get(m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A);
        let upper = m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A::SIZE_UPPER.get(upper);
        let lower = self.get(m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B);
        let of_tpc = u64::from(upper) << 32 | u64::from(lower);
        let sms = self.get(m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C);
        let sms = m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C::MAX_SM_COUNT.get(sms);
        // A TPC has two SMs.
        (address, of_tpc.saturating_mul(u64::from(sms.div_ceil(2))))
    }

    /// The state as words.
    pub(super) fn save(&self) -> [u32; SAVED_WORDS] {
        self.words
    }

    /// Restores the state from the words that [`State::save`] gave.
    pub(super) fn load(&mut self, words: &mut impl Iterator<Item = u32>) {
        for word in &mut self.words {
            *word = words.next().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_put_together_from_their_words() {
        let mut state = State::default();
        for (method, data) in [
            (m::SEND_PCAS_A, 0x1234_5678),
            (m::SET_SHADER_SHARED_MEMORY_WINDOW_A, 0xffff_7294),
            (m::SET_SHADER_SHARED_MEMORY_WINDOW_B, 0x100),
            (m::SET_SHADER_LOCAL_MEMORY_A, 0x12),
            (m::SET_SHADER_LOCAL_MEMORY_B, 0x3456_7000),
            (m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A, 1),
            (m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B, 0x8000),
            (m::SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C, 5),
            (m::SET_INLINE_QMD_ADDRESS_A, 1 << 30 | 0x1),
            (m::SET_INLINE_QMD_ADDRESS_B, 0x10),
        ] {
            assert!(state.set(method, data), "{method:#x}");
        }
        assert!(!state.set(0x110, 1));
        assert_eq!((state.qmd(), state.shared_window()), (0x12_3456_7800, 0x1_7294_0000_0100));
        assert_eq!(state.local_memory(), (0x12_3456_7000, 3 * 0x1_0000_8000));
        assert_eq!(state.inline_qmd(), (0x100_0000_1000, 96));

        let mut loaded = State::default();
        loaded.load(&mut state.save().into_iter());
        assert_eq!(loaded.save(), state.save());
    }
}
