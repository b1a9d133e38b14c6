//! The GPU's own time of work: a stamp before it and one behind it, in memory that the processor reads.

use anyhow::Result;

use crate::drm::{Mapped, Place, UserSpace};
use crate::engine::Engine;
use crate::push::Commands;

/// How many pieces of work can be under way with stamps of their own.
pub const SLOTS: usize = 8;
/// A release is a payload, and the time at +8.
const STAMP: usize = 16;
const SIZE: usize = 4096;

/// Memory for stamps.
#[derive(Debug)]
pub struct Stamps(Mapped);

impl Stamps {
    /// Stamps in the address space `space`.
    pub fn new(space: &mut UserSpace) -> Result<Self> {
        Ok(Self(space.mapped(Place::Gart, SIZE)?))
    }

    /// `work` between the two stamps of `slot`; the second waits for all of it.
    pub fn around(&self, engine: Engine, slot: usize, work: &Commands) -> Commands {
        let at = self.0.1 + place(slot) as u64;
        let mut commands = Commands::new();
        engine.release_with_time(&mut commands, at, 1);
        commands.extend(work);
        engine.release_with_time(&mut commands, at + STAMP as u64, 2);
        commands
    }

    /// When the work of `slot` began and ended, in nanoseconds of the GPU's clock.
    pub fn read(&mut self, slot: usize) -> Result<(u64, u64)> {
        let mut stamps = [[0; 8]; 2];
        for (index, stamp) in stamps.iter_mut().enumerate() {
            self.0.0.read(place(slot) + index * STAMP + 8, stamp)?;
        }
        let [begin, end] = stamps.map(u64::from_le_bytes);
        Ok((begin, end))
    }
}

fn place(slot: usize) -> usize {
    slot % SLOTS * 2 * STAMP
}

const _: () = assert!(SLOTS * 2 * STAMP <= SIZE);
