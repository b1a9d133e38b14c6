//! The register units behind their lock, and two values published beside it for fast paths.
//!
//! The lock is held for the time of one register access or event, and never while the back is called. Under
//! it, only the interrupt sink is called, which does not block; that keeps level changes in order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::effect::Effect;
use super::locked;
use super::registers::Registers;
use crate::counters::CountersChanged;
use gpuvmk_chip::registers::Reg;
use gpuvmk_host::clock::Clock;
use gpuvmk_mmio_trap::access::Word;

/// Units and what is published of them.
pub struct Face {
    registers: Mutex<Registers>,
    clock: Arc<dyn Clock>,
    /// First VRAM address that PRAMIN shows.
    pramin: AtomicU64,
    lost: AtomicBool,
    /// Of the registers, and of all others of the function.
    pub counters_changed: CountersChanged,
}

impl std::fmt::Debug for Face {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Face").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Face {
    /// Units in their reset state.
    pub fn new(registers: Registers, clock: Arc<dyn Clock>) -> Self {
        Self {
            registers: Mutex::new(registers),
            clock,
            pramin: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            counters_changed: CountersChanged::default(),
        }
    }

    /// Units in a saved state.
    pub fn restored(registers: Registers, clock: Arc<dyn Clock>, lost: bool) -> Self {
        let pramin = AtomicU64::new(registers.pramin_start());
        Self { pramin, lost: AtomicBool::new(lost), ..Self::new(registers, clock) }
    }

    /// The clock's time.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// The units.
    pub fn lock(&self) -> MutexGuard<'_, Registers> {
        locked(&self.registers)
    }

    /// Reads a register.
    pub fn read(&self, reg: Reg) -> u32 {
        let mut units = self.lock();
        let value = units.read(reg, &*self.clock);
        self.note_counters(&mut units);
        tell_unlisted(&mut units);
        value
    }

    /// Writes a register and collects what follows from it.
    pub fn write(&self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        let mut units = self.lock();
        units.write(reg, word, &*self.clock, effects);
        self.pramin.store(units.pramin_start(), Ordering::Release);
        self.note_counters(&mut units);
        tell_unlisted(&mut units);
    }

    fn note_counters(&self, units: &mut Registers) {
        if units.take_counters_changed() {
            self.counters_changed.note();
        }
    }

    /// Handles a function reset.
    pub fn reset(&self) {
        let mut units = self.lock();
        units.reset();
        self.pramin.store(units.pramin_start(), Ordering::Release);
        self.lost.store(false, Ordering::Release);
    }

    /// First VRAM address that PRAMIN shows.
    pub fn pramin(&self) -> u64 {
        self.pramin.load(Ordering::Acquire)
    }

    /// True when the back is gone.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// The back is gone; false when that was known.
    pub fn lose(&self) -> bool {
        !self.lost.swap(true, Ordering::AcqRel)
    }
}

/// Logs once that a driver uses registers that no table lists.
fn tell_unlisted(units: &mut Registers) {
    if let Some(Reg(offset)) = units.take_notice() {
        log::info!(
            "The driver uses registers that no table lists, first {offset:#08x}: they are plain storage"
        );
    }
}
