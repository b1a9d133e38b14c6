//! `badaddr`, `badcopy`: an address that is not mapped must kill its own channel, be named in the kernel's log,
//! release whoever waits for that channel, and leave everybody else alone.
//!
//! The two differ in who meets the address: the host unit (a semaphore release) or the graphics engine (a copy).

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::session::Session;
use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::{Buffer, Channel, Device, Place, errno};
use crate::engine::Engine;
use crate::kmsg::Log;
use crate::push::Commands;

/// Far above what nouveau hands out, and inside the 40 bits of an address.
const UNMAPPED: u64 = 0x3f_0000_0000;
/// How the kernel's log has it, whichever of the first words is met first.
const UNMAPPED_PREFIX: &str = "3f0000";
/// How long the driver may take to notice, and to tear the channel down.
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
    let mut log = Log::from_now()?;
    let mut bystander = Session::open(gpu, 1 << 20)?;
    bystander.there_and_back(1, [0, 0, 0], LENGTH).context("before the fault")?;

    let device = Device::open(gpu)?;
    let chip = Chip::of(&device)?;
    let mut victim = Channel::open(&device, chip.mover())?;
    let mut commands = Commands::new();
    harm(chip.mover(), &mut commands);
    let waited_for = Buffer::new(&device, Place::Gart, LENGTH)?;
    let start = Instant::now();
    match victim.submit(&commands, &[&waited_for]) {
        Ok(()) => {}
        // The channel may be dead before the kernel has put its own fence behind the commands.
        Err(error) if died(&error).is_some() => {}
        Err(error) => return Err(error).context("submitting the bad address"),
    }

    let words = [chip.fault_words(), &[UNMAPPED_PREFIX]].concat();
    let line = log.wait_for(&words, LIMIT)?;
    let line =
        line.with_context(|| format!("no fault at {UNMAPPED:#x} in the kernel's log within {LIMIT:?}"))?;
    let noticed = start.elapsed();
    let code = until_refused(&mut victim)?;
    let killed = start.elapsed();
    // Whether the kernel calls that an error is its own affair; a waiter that stays is the host's to report.
    let _ = waited_for.wait();
    let released = start.elapsed();
    drop(victim);

    for turn in 0..8 {
        bystander
            .there_and_back(2 + turn, [0, 4096, 0], LENGTH)
            .context("the other channel, after the fault")?;
    }
    let mut newcomer = Session::open(gpu, 1 << 20).context("a channel opened after the fault")?;
    newcomer.there_and_back(99, [0, 0, 0], LENGTH).context("a channel opened after the fault")?;

    let mut figures = Figures::new();
    figures.insert("line".into(), line.into());
    figures.insert("errno".into(), code.into());
    figures.insert("noticed_ms".into(), millis(noticed).into());
    figures.insert("killed_ms".into(), millis(killed).into());
    figures.insert("released_ms".into(), millis(released).into());
    Ok(figures)
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The error number, if it is one that a dead channel gives.
pub(super) fn died(error: &anyhow::Error) -> Option<i32> {
    errno(error).filter(|code| matches!(*code, libc::ENODEV | libc::EIO))
}

/// Submits harmless commands until the kernel refuses them; returns its error number.
pub(super) fn until_refused(channel: &mut Channel) -> Result<i32> {
    let mut harmless = Commands::new();
    harmless.bind(channel.engine().subchannel(), channel.engine().class());
    let start = Instant::now();
    loop {
        match channel.submit(&harmless, &[]) {
            Ok(()) => {}
            Err(error) => match died(&error) {
                Some(code) => return Ok(code),
                None => {
                    return Err(error)
                        .context("the dead channel fails with another error than ENODEV or EIO");
                }
            },
        }
        if start.elapsed() > LIMIT {
            bail!("the channel with the bad address still takes work after {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}
