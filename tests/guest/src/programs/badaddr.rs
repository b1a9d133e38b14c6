//! `badaddr`, `badcopy`: an address that is not mapped must kill its own channel, be named in the kernel's
//! log, release whoever waits for that channel, and leave everybody else alone ([`super::casualty`]).
//!
//! The two differ in who meets the address: the host unit (a semaphore release) or the graphics engine (a
//! copy). Not every firmware tells nouveau the address ([`Chip::fault_words`]).

use std::time::Duration;

use anyhow::Result;

use super::casualty::Casualty;
use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::{Buffer, Device, Place};
use crate::engine::Engine;
use crate::push::Commands;

/// Far above what nouveau hands out, and inside the 40 bits of an address.
const UNMAPPED: u64 = 0x3f_0000_0000;
/// How the kernel's log has it, whichever of the first words is met first.
const UNMAPPED_PREFIX: &str = "3f0000";
/// How long the driver may take to notice.
const LIMIT: Duration = Duration::from_secs(10);
const LENGTH: usize = 64 << 10;

/// The host unit meets the address.
pub fn by_host(options: &Options) -> Result<Figures> {
    run(options, |engine, commands| engine.release_with_time(commands, UNMAPPED, 1))
}

/// The engine that copies meets the address.
pub fn by_engine(options: &Options) -> Result<Figures> {
    run(options, |engine, commands| engine.copy(commands, UNMAPPED + 0x8000, UNMAPPED, 4096))
}

fn run(options: &Options, harm: impl FnOnce(Engine, &mut Commands)) -> Result<Figures> {
    let gpu = options.gpu()?;
    let device = Device::open(gpu)?;
    let chip = Chip::of(&device)?;
    let casualty = Casualty::open(gpu, &device)?;
    let mut commands = Commands::new();
    harm(chip.mover(), &mut commands);
    let waited_for = Buffer::new(&device, Place::Gart, LENGTH)?;
    casualty.dies_of(&commands, &waited_for, &chip.fault_words(UNMAPPED_PREFIX)?, LIMIT)
}
