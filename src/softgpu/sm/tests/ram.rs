//! Memory of tests: regions of words.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::{Access, Memory, MemoryFault, View, Width};

/// Regions, each with its address.
#[derive(Debug, Default)]
pub struct Ram {
    regions: Vec<(u64, Vec<AtomicU32>)>,
    /// Atomics of 64 bits take turns.
    turn: std::sync::Mutex<()>,
    time: AtomicU64,
}

impl Ram {
    pub fn map(&mut self, address: u64, words: &[u32]) {
        self.regions.push((address, words.iter().map(|word| AtomicU32::new(*word)).collect()));
    }

    pub fn code(&mut self, address: u64, bytes: &[u8]) {
        let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let mut words: Vec<u32> = words.collect();
        words.resize(words.len().next_multiple_of(1024), 0);
        self.map(address, &words);
    }

    fn word(&self, address: u64, access: Access) -> Result<&AtomicU32, MemoryFault> {
        let find = |(base, words): &'_ (u64, Vec<AtomicU32>)| {
            let index = usize::try_from(address.checked_sub(*base)? / 4).ok()?;
            (index < words.len()).then_some(index)
        };
        let found = self.regions.iter().find_map(|region| Some(&region.1[find(region)?]));
        found.ok_or(MemoryFault { address, access })
    }

    pub fn read(&self, address: u64) -> u32 {
        self.word(address, Access::Read).unwrap().load(Ordering::Relaxed)
    }
}

pub struct Look<'a>(&'a Ram);

impl Memory for Ram {
    fn view(&self) -> Box<dyn View + '_> {
        Box::new(Look(self))
    }
}

impl View for Look<'_> {
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault> {
        for (at, word) in (0..).zip(words) {
            *word = self.0.word(address + 4 * at, Access::Read)?.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        let word = self.0.word(address & !3, Access::Read)?.load(Ordering::Relaxed);
        Ok(word.to_le_bytes()[(address % 4) as usize])
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        for (at, word) in (0..).zip(words) {
            self.0.word(address + 4 * at, Access::Write)?.store(*word, Ordering::Relaxed);
        }
        Ok(())
    }

    fn store_byte(&mut self, address: u64, byte: u8) -> Result<(), MemoryFault> {
        let shift = 8 * (address % 4);
        let word = self.0.word(address & !3, Access::Write)?;
        word.fetch_and(!(0xff << shift), Ordering::Relaxed);
        word.fetch_or(u32::from(byte) << shift, Ordering::Relaxed);
        Ok(())
    }

    fn update(
        &mut self,
        address: u64,
        width: Width,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        let _turn = self.0.turn.lock().unwrap();
        let low = self.0.word(address, Access::Atomic)?;
        let high = self.0.word(address + 4, Access::Atomic);
        let old_low = u64::from(low.load(Ordering::Relaxed));
        let old = match (width, &high) {
            (Width::Double, Ok(high)) => old_low | u64::from(high.load(Ordering::Relaxed)) << 32,
            _ => old_low,
        };
        let new = change(old);
        low.store((new & 0xffff_ffff) as u32, Ordering::Relaxed);
        if width == Width::Double {
            high?.store((new >> 32) as u32, Ordering::Relaxed);
        }
        Ok(old)
    }

    fn timer(&mut self) -> u64 {
        self.0.time.fetch_add(1, Ordering::Relaxed)
    }
}
