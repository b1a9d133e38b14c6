//! A memory of a falcon, with its port.

use gpuvmk_chip::gsp::falcon::MEMORY_SIZE;
use gpuvmk_chip::gsp::regs::pfalcon::NV_PFALCON_FALCON_DMEMC as PORT;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError, Words};

/// Words of it.
const WORDS: usize = MEMORY_SIZE / 4;
/// The port's position, a multiple of 4. It wraps in its field.
const POSITION: u32 = PORT::BLK.mask() | PORT::OFFS.mask();
/// Bits of the port that stick. Whether code is signed does not matter to data that nothing runs.
const STICKS: u32 = POSITION | PORT::AINCW.mask() | PORT::AINCR.mask();

/// The memory. It takes room when it is written.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    words: Vec<u32>,
    port: u32,
}

impl Memory {
    /// The port.
    pub const fn port(&self) -> u32 {
        self.port
    }

    /// Sets the port.
    pub const fn set_port(&mut self, word: Word) {
        self.port = word.merge(self.port) & STICKS;
    }

    /// Reads at the port's position.
    pub fn read(&mut self) -> u32 {
        let value = self.words.get(self.position()).copied().unwrap_or(0);
        self.move_on(PORT::AINCR.mask());
        value
    }

    /// Writes at the port's position.
    pub fn write(&mut self, word: Word) {
        let position = self.position();
        if let Some(place) = self.place(position) {
            *place = word.merge(*place);
        }
        self.move_on(PORT::AINCW.mask());
    }

    /// Puts what DMA has read to a place that is a multiple of 4. What lies behind the end is dropped.
    pub fn load(&mut self, at: usize, data: &[u8]) {
        for (position, word) in (at / 4..).zip(data.as_chunks::<4>().0) {
            if let Some(place) = self.place(position) {
                *place = u32::from_le_bytes(*word);
            }
        }
    }

    /// A copy of all that was written, from the start on.
    pub fn contents(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Whether it is as a reset leaves it: zeros.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    fn position(&self) -> usize {
        usize::try_from((self.port & POSITION) / 4).unwrap_or(usize::MAX)
    }

    fn move_on(&mut self, when: u32) {
        if self.port & when != 0 {
            self.port = self.port & !POSITION | self.port.wrapping_add(4) & POSITION;
        }
    }

    fn place(&mut self, position: usize) -> Option<&mut u32> {
        if position >= WORDS {
            return None;
        }
        if self.words.len() <= position {
            self.words.resize(position + 1, 0);
        }
        self.words.get_mut(position)
    }

    /// The state to save: contents and port.
    pub fn state(&self) -> (Words, u32) {
        let Self { words, port } = self;
        (Words::of(words), *port)
    }

    /// The memory in a saved state.
    ///
    /// # Errors
    /// It is too large, or the port has bits that do not stick.
    pub fn from_state(check: Check, name: &str, words: &Words, port: u32) -> Result<Self, StateError> {
        let mut memory = words.memory(check, name, WORDS)?;
        memory.truncate(words.0.len());
        check.bits(name, port, STICKS)?;
        Ok(Self { words: memory, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_moves_on_when_it_is_told_to_and_wraps() {
        let mut memory = Memory::default();
        memory.set_port(Word::full(PORT::AINCW.mask() | 0xfffc));
        memory.write(Word::full(1));
        memory.write(Word::full(2));
        assert_eq!(memory.port() & 0xffff, 4);
        memory.set_port(Word::full(PORT::AINCR.mask() | 0xfffc));
        assert_eq!((memory.read(), memory.read(), memory.read()), (1, 2, 0));
    }

    #[test]
    fn what_is_loaded_behind_the_end_is_dropped() {
        let mut memory = Memory::default();
        memory.load(MEMORY_SIZE - 4, &[1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(memory.contents().len(), MEMORY_SIZE);
        memory.set_port(Word::full(0));
        assert_eq!(memory.read(), 0);
    }
}
