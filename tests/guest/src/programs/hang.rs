//! `hang`: work that never ends must cost its own channel and nobody else anything. The host takes the
//! channel off, the driver recovers it and says so, whoever waits for it is released, and the next channel
//! works ([`super::casualty`]).
//!
//! `kind=copy`: one copy of terabytes, which an engine that stops between methods cannot be taken off.
//! `kind=acquire`: a semaphore that nobody releases. `kind=chain`: a long chain of copies in one submission.
//! `kind=operator`: the same semaphore, but the host's operator takes the channel off before the host's own
//! limit does.

use std::time::Duration;

use anyhow::{Result, bail};

use super::casualty::Casualty;
use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::{Buffer, Device, Place};
use crate::push::Commands;

/// How long the host may take to notice, with the limits that the test sets.
const LIMIT: Duration = Duration::from_secs(15);
const LENGTH: usize = 64 << 10;
/// Pages of the endless copy, and of each copy of the chain: 16 TiB, and 64 MiB.
const ENDLESS: u64 = u32::MAX as u64;
const LINK: u64 = 16 << 10;
/// Copies of the chain: some seconds of work.
const LINKS: usize = 400;

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let kind: String = options.get("kind", "copy".to_owned())?;
    let device = Device::open(gpu)?;
    let chip = Chip::of(&device)?;
    let engine = chip.mover();
    let casualty = Casualty::open(gpu, &device)?;
    let memory = Buffer::new(&device, Place::Vram, LENGTH)?;
    let (from, to) = (memory.address(), memory.address() + 8192);
    let mut commands = Commands::new();
    let words = match kind.as_str() {
        "copy" => {
            engine.copy_again_and_again(&mut commands, to, from, ENDLESS);
            chip.hang_words()
        }
        "chain" => {
            for _ in 0..LINKS {
                engine.copy_again_and_again(&mut commands, to, from, LINK);
            }
            chip.hang_words()
        }
        "acquire" | "operator" => {
            engine.acquire(&mut commands, to, 0xdead_0001);
            if kind == "operator" { chip.hang_words() } else { chip.stuck_words() }
        }
        other => bail!("'{other}' is no kind of hang: copy, chain, acquire, operator"),
    };
    let mut figures = casualty.dies_of(&commands, &memory, words, LIMIT)?;
    figures.insert("kind".into(), kind.into());
    Ok(figures)
}
