//! `hang`: work that never ends must cost its own channel and nobody else anything. The host takes the channel off, the
//! driver recovers it and says so, whoever waits for it is released, and the next channel works.
//!
//! `kind=copy`: one copy of terabytes, which an engine that stops between methods cannot be taken off. `kind=acquire`: a
//! semaphore that nobody releases. `kind=chain`: a long chain of copies in one submission.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::badaddr::{died, millis, until_refused};
use super::session::Session;
use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::{Buffer, Channel, Device, Place};
use crate::kmsg::Log;
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
    let mut log = Log::from_now()?;
    let mut bystander = Session::open(gpu, 1 << 20)?;
    bystander.there_and_back(1, [0, 0, 0], LENGTH).context("before the hang")?;

    let device = Device::open(gpu)?;
    let chip = Chip::of(&device)?;
    let engine = chip.mover();
    let mut victim = Channel::open(&device, engine)?;
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
        "acquire" => {
            engine.acquire(&mut commands, to, 0xdead_0001);
            chip.stuck_words()
        }
        other => bail!("'{other}' is no kind of hang: copy, chain, acquire"),
    };
    let start = Instant::now();
    match victim.submit(&commands, &[&memory]) {
        Ok(()) => {}
        Err(error) if died(&error).is_some() => {}
        Err(error) => return Err(error).context("submitting the work that never ends"),
    }

    let line = log.wait_for(words, LIMIT)?;
    let line = line.with_context(|| format!("no {words:?} in the kernel's log within {LIMIT:?}"))?;
    let noticed = start.elapsed();
    let code = until_refused(&mut victim)?;
    let killed = start.elapsed();
    // Whether the kernel calls that an error is its own affair; a waiter that stays is the host's to report.
    let _ = memory.wait();
    let released = start.elapsed();
    drop(victim);

    for turn in 0..8 {
        bystander
            .there_and_back(2 + turn, [0, 4096, 0], LENGTH)
            .context("the other channel, after the hang")?;
    }
    let mut newcomer = Session::open(gpu, 1 << 20).context("a channel opened after the hang")?;
    newcomer.there_and_back(99, [0, 0, 0], LENGTH).context("a channel opened after the hang")?;

    let mut figures = Figures::new();
    figures.insert("kind".into(), kind.into());
    figures.insert("line".into(), line.into());
    figures.insert("errno".into(), code.into());
    figures.insert("noticed_ms".into(), millis(noticed).into());
    figures.insert("killed_ms".into(), millis(killed).into());
    figures.insert("released_ms".into(), millis(released).into());
    Ok(figures)
}
