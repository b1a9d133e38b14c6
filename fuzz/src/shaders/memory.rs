//! A small memory for shaders: one run of words, and nothing around it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gpuvmk_sm::{Access, Memory, MemoryFault, View, Width};

/// Virtual address of the first word.
pub(super) const BASE: u64 = 0x10_0000_0000;

/// Words.
pub(super) const WORDS: usize = 0x4000;

/// The memory. Atomics take turns.
#[derive(Debug)]
pub(super) struct Ram {
    words: Vec<AtomicU32>,
    turn: Mutex<()>,
    time: AtomicU64,
}

impl Ram {
    /// Memory that begins with these words.
    pub(super) fn new(words: impl Iterator<Item = u32>) -> Self {
        let words = words.chain(std::iter::repeat(0)).take(WORDS).map(AtomicU32::new).collect();
        Self { words, turn: Mutex::default(), time: AtomicU64::new(0) }
    }

    /// All words as they are.
    pub(super) fn words(&self) -> Vec<u32> {
        self.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn word(&self, address: u64, access: Access) -> Result<&AtomicU32, MemoryFault> {
        let index = address.checked_sub(BASE).and_then(|offset| usize::try_from(offset / 4).ok());
        index.and_then(|index| self.words.get(index)).ok_or(MemoryFault { address, access })
    }
}

impl Memory for Ram {
    fn view(&self) -> Box<dyn View + '_> {
        Box::new(Look(self))
    }
}

struct Look<'a>(&'a Ram);

/// Addresses of consecutive words.
fn places(address: u64) -> impl Iterator<Item = u64> {
    (0_u64..).map(move |index| address.wrapping_add(index * 4))
}

impl View for Look<'_> {
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault> {
        assert!(address.is_multiple_of(4), "a load of words at {address:#x}");
        for (word, place) in words.iter_mut().zip(places(address)) {
            *word = self.0.word(place, Access::Read)?.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        let word = self.0.word(address, Access::Read)?.load(Ordering::Relaxed);
        let [a, b, c, d] = word.to_le_bytes();
        Ok(match address % 4 {
            0 => a,
            1 => b,
            2 => c,
            _ => d,
        })
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        assert!(address.is_multiple_of(4), "a store of words at {address:#x}");
        for (word, place) in words.iter().zip(places(address)) {
            self.0.word(place, Access::Write)?.store(*word, Ordering::Relaxed);
        }
        Ok(())
    }

    fn store_byte(&mut self, address: u64, byte: u8) -> Result<(), MemoryFault> {
        let shift = 8 * (address % 4);
        let word = self.0.word(address, Access::Write)?;
        let change = |old: u32| Some(old & !(0xff << shift) | u32::from(byte) << shift);
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        Ok(())
    }

    fn update(
        &mut self,
        address: u64,
        width: Width,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        let bytes = if width == Width::Double { 8 } else { 4 };
        assert!(address.is_multiple_of(bytes), "an atomic at {address:#x}");
        let _turn = self.0.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let low = self.0.word(address, Access::Atomic)?;
        let high = match width {
            Width::Double => Some(self.0.word(address.wrapping_add(4), Access::Atomic)?),
            Width::Word => None,
        };
        let half = |word: &AtomicU32| u64::from(word.load(Ordering::Relaxed));
        let before = half(low) | high.map_or(0, half) << 32;
        let [a, b, c, d, e, f, g, h] = change(before).to_le_bytes();
        low.store(u32::from_le_bytes([a, b, c, d]), Ordering::Relaxed);
        if let Some(high) = high {
            high.store(u32::from_le_bytes([e, f, g, h]), Ordering::Relaxed);
        }
        Ok(before)
    }

    fn timer(&mut self) -> u64 {
        self.0.time.fetch_add(1, Ordering::Relaxed)
    }
}
