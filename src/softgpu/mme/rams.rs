//! The memories of the macro method expander: instructions, start addresses, data, and the FIFO.

use std::collections::VecDeque;

use super::trap::{Stop, Trap};
use crate::mmu::channel_memory::ChannelMemory;
use gpuvmk_chip::gh100::methods::macros::{
    MACROS, SET_MME_DATA_FIFO_CONFIG::FIFO_SIZE, SET_MME_MEM_ADDRESS_A,
};
use gpuvmk_chip::mme::{Encoded, GROUP_WORDS, Group};

/// Words of instructions: as many groups as the PC of 12 bits counts. The size of hardware's is not known.
const INSTRUCTION_WORDS: usize = GROUP_WORDS << 12;

/// Words of data RAM and the FIFO together. Mesa finds 0xc00 words of data beside a FIFO of 4 KiB.
const DATA_WORDS: usize = 0x1000;

/// Words of 4 KiB, the unit of the FIFO's size.
const FIFO_UNIT: usize = 0x400;

/// A memory that is loaded through a pointer, and grows to what was loaded.
#[derive(Clone, Debug, Default)]
struct Loaded {
    words: Vec<u32>,
    pointer: u32,
}

impl Loaded {
    fn load(&mut self, size: usize, data: u32) -> Result<(), Trap> {
        let index = usize::try_from(self.pointer).unwrap_or(usize::MAX);
        if index >= size {
            return Err(Trap::InstructionRam);
        }
        if index >= self.words.len() {
            self.words.resize(index.saturating_add(1), 0);
        }
        if let Some(word) = self.words.get_mut(index) {
            *word = data;
        }
        self.pointer = self.pointer.wrapping_add(1);
        Ok(())
    }
}

/// Instructions, and where macros begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    instructions: Loaded,
    starts: Loaded,
}

impl Code {
    pub(super) fn point_instruction(&mut self, word: u32) {
        self.instructions.pointer = word;
    }

    pub(super) fn load_instruction(&mut self, data: u32) -> Result<(), Trap> {
        self.instructions.load(INSTRUCTION_WORDS, data)
    }

    pub(super) fn point_start(&mut self, number: u32) {
        self.starts.pointer = number;
    }

    pub(super) fn load_start(&mut self, data: u32) -> Result<(), Trap> {
        self.starts.load(MACROS.into(), data)
    }

    /// The word at which a macro begins.
    pub(super) fn start(&self, number: u16) -> u32 {
        self.starts.words.get(usize::from(number)).copied().unwrap_or(0)
    }

    /// The group at `place` of a macro. What was not loaded is no group.
    pub(super) fn group(&self, start: u32, place: u16) -> Result<Group, Trap> {
        let offset = usize::from(place).saturating_mul(GROUP_WORDS);
        let first = usize::try_from(start).unwrap_or(usize::MAX).saturating_add(offset);
        let words = self.instructions.words.get(first..).and_then(|rest| rest.first_chunk());
        Encoded::from(*words.ok_or(Trap::InstructionRam)?).decode().map_err(|_| Trap::IllegalOpcode)
    }
}

/// Data RAM, the FIFO, and where transfers go.
#[derive(Clone, Debug)]
pub(super) struct Data {
    words: Vec<u32>,
    fifo: VecDeque<u32>,
    /// Words of the FIFO.
    fifo_size: usize,
    /// Memory address: its upper and its lower word.
    address: [u32; 2],
    place: u32,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            fifo: VecDeque::new(),
            // Blackwell's drivers cannot set it, and use it.
            fifo_size: FIFO_UNIT,
            address: [0; 2],
            place: 0,
        }
    }
}

impl Data {
    fn size(&self) -> usize {
        DATA_WORDS.saturating_sub(self.fifo_size)
    }

    pub(super) fn set_address(&mut self, upper: Option<u32>, lower: Option<u32>) {
        let [high, low] = &mut self.address;
        *high = upper.unwrap_or(*high);
        *low = lower.unwrap_or(*low);
    }

    pub(super) fn set_place(&mut self, word: u32) {
        self.place = word;
    }

    /// Sets the FIFO's size, in the units of its method.
    pub(super) fn resize_fifo(&mut self, data: u32) -> Result<(), Trap> {
        let units = FIFO_SIZE.get(data);
        if units > FIFO_SIZE::LARGEST {
            return Err(Trap::FifoSize);
        }
        if !self.fifo.is_empty() {
            return Err(Trap::FifoResized);
        }
        self.fifo_size = usize::try_from(units).unwrap_or(0).saturating_mul(FIFO_UNIT);
        Ok(())
    }

    fn va(&self) -> u64 {
        let [high, low] = self.address;
        u64::from(SET_MME_MEM_ADDRESS_A::UPPER.get(high)) << 32 | u64::from(low)
    }

    fn at(&self, index: u32) -> Result<usize, Trap> {
        usize::try_from(index).ok().filter(|index| *index < self.size()).ok_or(Trap::DataRam)
    }

    /// What DREAD reads.
    pub(super) fn read(&self, index: u32) -> Result<u32, Trap> {
        let index = self.at(index)?;
        Ok(self.words.get(index).copied().unwrap_or(0))
    }

    /// What DWRITE does.
    pub(super) fn write(&mut self, index: u32, value: u32) -> Result<(), Trap> {
        let index = self.at(index)?;
        if self.words.is_empty() {
            self.words.resize(DATA_WORDS, 0);
        }
        if let Some(word) = self.words.get_mut(index) {
            *word = value;
        }
        Ok(())
    }

    /// Where a transfer of `length` words goes in data RAM.
    fn range(&self, length: u32) -> Result<std::ops::Range<u32>, Trap> {
        let end = self.place.checked_add(length).ok_or(Trap::TransferOutOfBounds)?;
        let fits = usize::try_from(end).is_ok_and(|end| end <= self.size());
        if fits { Ok(self.place..end) } else { Err(Trap::TransferOutOfBounds) }
    }

    /// Reads words of memory into data RAM.
    pub(super) fn dma_read(&mut self, memory: &dyn ChannelMemory, length: u32) -> Result<(), Stop> {
        let range = self.range(length)?;
        let words = read(memory, self.va(), range.len())?;
        for (index, word) in range.zip(words) {
            self.write(index, word)?;
        }
        Ok(())
    }

    /// Writes words of data RAM to memory.
    pub(super) fn dma_write(&self, memory: &dyn ChannelMemory, length: u32) -> Result<(), Stop> {
        let words = self.range(length)?.map(|index| self.read(index)).collect::<Result<Vec<_>, _>>()?;
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        Ok(memory.write(self.va(), &bytes)?)
    }

    /// Reads words of memory into the FIFO.
    pub(super) fn dma_read_fifoed(&mut self, memory: &dyn ChannelMemory, length: u32) -> Result<(), Stop> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if self.fifo.len().saturating_add(length) > self.fifo_size {
            return Err(Trap::FifoOverflow.into());
        }
        self.fifo.extend(read(memory, self.va(), length)?);
        Ok(())
    }

    /// The words that the FIFO holds.
    pub(super) fn fifo(&mut self) -> &mut VecDeque<u32> {
        &mut self.fifo
    }
}

/// Words of memory: as many as data RAM and the FIFO have at most.
fn read(memory: &dyn ChannelMemory, va: u64, length: usize) -> Result<Vec<u32>, Stop> {
    let mut bytes = vec![0; length.min(DATA_WORDS).saturating_mul(4)];
    memory.read(va, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
}
