//! What attacks on memory need of a chip's driver: a page at an address of choice, copies, and how they
//! ended.

use std::time::Duration;

use anyhow::Result;

use super::Outcome;
use super::card::Card;
use crate::dma_memory::{DmaMemory, Piece};

/// How long honest work may take, however busy the machine is.
pub const HONEST: Duration = Duration::from_secs(10);
/// Virtual addresses of the honest pages that copies come from and go to, and of the page that attacks
/// choose.
pub const FROM: u64 = 0x4000_0000;
pub const TO: u64 = 0x4800_0000;
pub const HERE: u64 = 0x20_0000_0000;
/// Where nothing is ever mapped.
pub const NOWHERE: u64 = 0x3f_0000_0000;

/// What an entry of a page table, a directory or a pointer names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The GPU's memory.
    Vram(u64),
    /// Another GPU's memory.
    Peer(u64),
    /// The guest's memory, or whatever else is on the bus.
    Memory(u64),
}

impl Target {
    /// The same further on.
    pub fn moved(self, by: u64) -> Self {
        match self {
            Self::Vram(address) => Self::Vram(address.wrapping_add(by)),
            Self::Peer(address) => Self::Peer(address.wrapping_add(by)),
            Self::Memory(address) => Self::Memory(address.wrapping_add(by)),
        }
    }
}

/// How work on a channel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The fence behind it was written.
    Done,
    /// The MMU refused an access to this address.
    Fault(u64),
    /// Something else stopped the channel.
    Error,
    /// The whole vGPU answers no more.
    Lost,
    /// Nothing happened in time.
    Silent,
}

impl End {
    /// What the attacker makes of it when its work was forbidden.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Done => Outcome::Values,
            Self::Fault(_) | Self::Error | Self::Lost => Outcome::Quarantined,
            Self::Silent => Outcome::Refused,
        }
    }

    /// Whether the channel, and only that, was stopped.
    pub fn stopped(self) -> bool {
        matches!(self, Self::Fault(_) | Self::Error)
    }
}

/// A driver with one address space and one channel in it, and an honest page of memory on either side of a
/// copy.
pub trait Tool: Sync {
    /// The GPU's registers.
    fn card(&self) -> &Card;
    /// The memory that the GPU reads.
    fn memory(&self) -> &DmaMemory;
    /// A zeroed piece of it.
    fn take(&mut self, size: usize) -> Result<Piece>;
    /// Bytes of VRAM.
    fn vram(&self) -> u64;
    /// The honest pages: at [`FROM`] and at [`TO`].
    fn pages(&self) -> [Piece; 2];
    /// The entry of a valid page.
    fn entry(&self, target: Target) -> u64;
    /// Whether an entry, read as hardware does, names the guest's own memory, which ends at `memory`.
    fn names_own(&self, entry: u64, memory: u64) -> bool;
    /// The table with the entry of an address, made if there is none, and where in it the entry is.
    fn place(&mut self, va: u64) -> Result<(Piece, usize)>;
    /// Drops the GPU's translations of the space.
    fn flush(&self);
    /// Copies lines of a page each, `pitch` apart, and waits for the end.
    fn copy(&mut self, to: u64, from: u64, lines: Lines, limit: Duration) -> End;
    /// Begins a copy of a page from [`FROM`] to [`TO`] that does not end by itself.
    fn begin_endless(&mut self);
    /// Waits for the end of what was begun.
    fn end(&mut self, limit: Duration) -> End;
    /// The channel anew, after it was stopped or is to be.
    fn revive(&mut self) -> Result<()>;
    /// Commands that only notify the driver, submitted; true when all submitted before are done.
    fn notify(&mut self) -> End;
    /// Whether the vGPU answers with ones only.
    fn is_lost(&self) -> bool {
        self.card().reg(0) == u32::MAX
    }

    /// Writes the entry of an address.
    fn set(&mut self, va: u64, raw: u64) -> Result<()> {
        let (table, at) = self.place(va)?;
        self.memory().store64(table, at, raw);
        Ok(())
    }

    /// Maps whole pages at `va`; no flush.
    fn map(&mut self, va: u64, target: Target, size: u64) -> Result<()> {
        for offset in (0..size).step_by(0x1000) {
            let raw = self.entry(target.moved(offset));
            self.set(va + offset, raw)?;
        }
        Ok(())
    }

    /// Copies one page.
    fn copy_page(&mut self, to: u64, from: u64) -> End {
        self.copy(to, from, Lines { count: 1, pitch: 0x1000 }, HONEST)
    }

    /// Copies the honest page, filled with `value`; a GPU that moved something else has erred.
    fn copies_honestly(&mut self, value: u32) -> End {
        let [from, to] = self.pages();
        self.memory().fill(from, value);
        self.memory().fill(to, !value);
        let end = self.copy_page(TO, FROM);
        let moved = (0..0x1000).step_by(4).all(|at| self.memory().load32(to, at) == value);
        if end == End::Done && !moved { End::Error } else { end }
    }
}

/// Lines of a copy: a page each.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    pub count: u32,
    pub pitch: u32,
}
