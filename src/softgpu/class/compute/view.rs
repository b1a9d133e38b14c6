//! Global memory as shaders see it: the channel's own address space.

use std::sync::{Mutex, PoisonError};

use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_sm::{Access, Memory, MemoryFault, View, Width};

use crate::clock::Clock;
use crate::engine::model::Run;
use crate::mmu::channel_memory::ChannelMemory;
use crate::mmu::near::Near;

/// Words that are loaded or stored through one buffer.
const CHUNK_WORDS: usize = 32;

/// Memory of a channel, for the workers that execute its grid.
#[derive(Debug)]
pub(super) struct Global<'a> {
    memory: &'a dyn ChannelMemory,
    clock: Clock,
    /// What the MMU said of the faults that workers met: each stops at its first one.
    faults: Mutex<Vec<(MemoryFault, MmuFault)>>,
}

impl<'a> Global<'a> {
    pub(super) fn new(run: &Run<'a>) -> Self {
        Self { memory: run.memory, clock: run.clock, faults: Mutex::default() }
    }

    /// What the MMU said of a fault.
    pub(super) fn reason(&self, fault: MemoryFault) -> Option<MmuFault> {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.iter().find(|(met, _)| *met == fault).map(|(_, reason)| *reason)
    }

    fn note(&self, access: Access, reason: MmuFault) -> MemoryFault {
        let fault = MemoryFault { address: reason.address.0, access };
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push((fault, reason));
        fault
    }
}

impl Memory for Global<'_> {
    fn view(&self) -> Box<dyn View + '_> {
        Box::new(WorkerView { global: self, near: Near::default() })
    }
}

/// What one worker sees.
#[derive(Debug)]
struct WorkerView<'a> {
    global: &'a Global<'a>,
    /// Translations of its own.
    near: Near,
}

impl WorkerView<'_> {
    #[inline]
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        let read = self.global.memory.load(&mut self.near, address, bytes);
        read.map_err(|reason| self.global.note(Access::Read, reason))
    }

    #[inline]
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let written = self.global.memory.store(&mut self.near, address, bytes);
        written.map_err(|reason| self.global.note(Access::Write, reason))
    }
}

impl View for WorkerView<'_> {
    fn load(&mut self, address: u64, words: &mut [u32]) -> Result<(), MemoryFault> {
        let mut va = address;
        for chunk in words.chunks_mut(CHUNK_WORDS) {
            let mut buffer = [0; CHUNK_WORDS * 4];
            let (bytes, _) = buffer.split_at_mut(chunk.len().min(CHUNK_WORDS) * 4);
            self.read(va, bytes)?;
            for (word, bytes) in chunk.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
            va = va.saturating_add(bytes.len() as u64);
        }
        Ok(())
    }

    fn load_byte(&mut self, address: u64) -> Result<u8, MemoryFault> {
        let mut byte = [0];
        self.read(address, &mut byte)?;
        let [byte] = byte;
        Ok(byte)
    }

    fn store(&mut self, address: u64, words: &[u32]) -> Result<(), MemoryFault> {
        let mut va = address;
        for chunk in words.chunks(CHUNK_WORDS) {
            let mut buffer = [0; CHUNK_WORDS * 4];
            for (bytes, word) in buffer.as_chunks_mut().0.iter_mut().zip(chunk) {
                *bytes = word.to_le_bytes();
            }
            let (bytes, _) = buffer.split_at(chunk.len().min(CHUNK_WORDS) * 4);
            self.write(va, bytes)?;
            va = va.saturating_add(bytes.len() as u64);
        }
        Ok(())
    }

    fn store_byte(&mut self, address: u64, byte: u8) -> Result<(), MemoryFault> {
        self.write(address, &[byte])
    }

    fn update(
        &mut self,
        address: u64,
        width: Width,
        change: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, MemoryFault> {
        let before = match width {
            Width::Word => {
                let mut low = |word: u32| {
                    let [a, b, c, d, ..] = change(word.into()).to_le_bytes();
                    Some(u32::from_le_bytes([a, b, c, d]))
                };
                self.global.memory.update_u32(address, &mut low).map(u64::from)
            }
            Width::Double => self.global.memory.update_u64(address, &mut |word| Some(change(word))),
        };
        before.map_err(|reason| self.global.note(Access::Atomic, reason))
    }

    fn timer(&mut self) -> u64 {
        self.global.clock.timestamp()
    }
}
