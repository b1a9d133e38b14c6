//! Memory of a kernel: its code, buffers, and stacks, each at an address of its own with nothing around it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gpuvmk_sm::{Access, Memory, MemoryFault, View, Width};

/// The first area's address, and how far areas lie apart at least.
const FIRST: u64 = 0x7f00_0000_0000;
const APART: u64 = 1 << 32;

/// Words of code are fetched by pages.
const PAGE_WORDS: usize = 1024;

/// Most reads of memory never written that are kept.
const MOST_READS: usize = 64;

/// An area.
#[derive(Debug)]
struct Area {
    words: Vec<AtomicU32>,
    /// Words that hold a value, if that is looked at.
    written: Vec<AtomicBool>,
}

/// All areas.
#[derive(Debug, Default)]
pub struct Areas {
    areas: Vec<Area>,
    /// Addresses of words that were read and never written.
    unwritten: Mutex<Vec<u64>>,
    /// Atomics of 64 bits take turns.
    turn: Mutex<()>,
    time: AtomicU64,
}

impl Areas {
    /// Adds an area of these words, and gives its address. `written` says that they are values that may be
    /// read.
    pub fn add(&mut self, words: &[u32], written: bool) -> u64 {
        let address = FIRST + APART * self.areas.len() as u64;
        self.areas.push(Area {
            words: words.iter().map(|word| AtomicU32::new(*word)).collect(),
            written: words.iter().map(|_| AtomicBool::new(written)).collect(),
        });
        address
    }

    /// Adds code.
    pub fn add_code(&mut self, bytes: &[u8]) -> u64 {
        let mut words = words_of(bytes);
        words.resize(words.len().next_multiple_of(PAGE_WORDS), 0);
        self.add(&words, true)
    }

    /// Puts bytes at an address: whole words of an area. False if they are none.
    pub fn put(&self, address: u64, bytes: &[u8]) -> bool {
        let words = words_of(bytes);
        let addresses = (address..).step_by(4);
        words.iter().zip(addresses).all(|(word, at)| self.write(at, *word, Access::Write).is_ok())
    }

    /// Bytes from an address on. `None`: they are not of one area.
    pub fn part(&self, address: u64, count: usize) -> Option<Vec<u8>> {
        let at = usize::try_from(address.checked_sub(FIRST)? % APART).ok()?;
        Some(self.bytes(address).get(at..)?.get(..count)?.to_vec())
    }

    /// The bytes of the area at an address.
    pub fn bytes(&self, address: u64) -> Vec<u8> {
        let area = self.areas.get(index(address));
        let words = area.into_iter().flat_map(|area| &area.words);
        words.flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    /// Takes the addresses of words that were read and never written.
    pub fn take_unwritten(&self) -> Vec<u64> {
        std::mem::take(&mut self.unwritten.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn find(&self, address: u64, access: Access) -> Result<(&AtomicU32, &AtomicBool), MemoryFault> {
        let fault = MemoryFault { address, access };
        let place = address.checked_sub(FIRST).ok_or(fault)? % APART / 4;
        let area = self.areas.get(index(address)).ok_or(fault)?;
        let place = usize::try_from(place).map_err(|_| fault)?;
        Ok((area.words.get(place).ok_or(fault)?, area.written.get(place).ok_or(fault)?))
    }

    fn read(&self, address: u64, access: Access) -> Result<u32, MemoryFault> {
        let (word, written) = self.find(address, access)?;
        if !written.load(Ordering::Relaxed) {
            let mut reads = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
            if reads.len() < MOST_READS {
                reads.push(address);
            }
        }
        Ok(word.load(Ordering::Relaxed))
    }

    fn write(&self, address: u64, value: u32, access: Access) -> Result<(), MemoryFault> {
        let (word, written) = self.find(address, access)?;
        word.store(value, Ordering::Relaxed);
        written.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The number of the area at an address. One that is not there has none.
fn index(address: u64) -> usize {
    let number = address.checked_sub(FIRST).map(|offset| offset / APART);
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(usize::MAX)
}

/// Bytes as words; the last one is filled up with zeros.
pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    bytes.chunks(4).map(word).collect()
}

impl Memory for Areas {
    fn view(&self) -> Box<dyn View + '_> {
        Box::new(Look(self))
    }
}

#[derive(Debug)]
struct Look<'a>(&'a Areas);

impl View for Look<'_> {
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault> {
        for (word, at) in words.iter_mut().zip((address..).step_by(4)) {
            *word = self.0.read(at, Access::Read)?;
        }
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        let [a, b, c, d] = self.0.read(address & !3, Access::Read)?.to_le_bytes();
        Ok(match address % 4 {
            0 => a,
            1 => b,
            2 => c,
            _ => d,
        })
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        for (word, at) in words.iter().zip((address..).step_by(4)) {
            self.0.write(at, *word, Access::Write)?;
        }
        Ok(())
    }

    fn store_byte(&mut self, address: u64, byte: u8) -> Result<(), MemoryFault> {
        let shift = 8 * (address % 4);
        let (word, written) = self.0.find(address & !3, Access::Write)?;
        let change = |word: u32| Some(word & !(0xff << shift) | u32::from(byte) << shift);
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        written.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn update(
        &mut self,
        address: u64,
        width: Width,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        let Self(areas) = self;
        let _turn = areas.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let halves = |value: u64| {
            let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
            [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
        };
        let mut before = u64::from(areas.read(address, Access::Atomic)?);
        if width == Width::Double {
            before |= u64::from(areas.read(address + 4, Access::Atomic)?) << 32;
        }
        let [low, high] = halves(change(before));
        areas.write(address, low, Access::Atomic)?;
        if width == Width::Double {
            areas.write(address + 4, high, Access::Atomic)?;
        }
        Ok(before)
    }

    fn timer(&mut self) -> u64 {
        self.0.time.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_have_nothing_around_them_and_know_what_was_written() {
        let mut areas = Areas::default();
        let (one, two) = (areas.add(&[1, 2], true), areas.add(&[0; 3], false));
        let mut view = areas.view();
        let mut words = [0; 2];
        view.load(one, &mut words).unwrap();
        assert_eq!(words, [1, 2]);
        assert_eq!(view.load(one + 4, &mut words).unwrap_err().address, one + 8);
        assert!(view.store(one - 4, &[0]).is_err());
        assert!(areas.take_unwritten().is_empty());
        view.store_byte(two + 5, 7).unwrap();
        view.load(two, &mut words).unwrap();
        assert_eq!(words, [0, 0x700]);
        assert_eq!(areas.take_unwritten(), [two]);
        assert_eq!(view.update(one, Width::Double, &mut |old| old + 1).unwrap(), 0x2_0000_0001);
        assert_eq!(areas.bytes(one), [2, 0, 0, 0, 2, 0, 0, 0]);
    }
}
