//! A channel that is made to die, whatever of: its death must be in the kernel's log, release whoever waits
//! for it, and leave everybody else alone; the next channel works.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Figures;
use super::session::Session;
use crate::chip::Chip;
use crate::drm::{Buffer, Channel, Device, errno};
use crate::kmsg::Log;
use crate::push::Commands;

/// How long the driver may take to tear a dead channel down.
const LIMIT: Duration = Duration::from_secs(10);
/// What the other channels copy.
const LENGTH: usize = 64 << 10;

/// The channel that is to die, and one that is to live on.
pub(super) struct Casualty {
    gpu: usize,
    log: Log,
    bystander: Session,
    victim: Channel,
}

impl Casualty {
    /// Both channels, of which the one that is to live has worked.
    pub(super) fn open(gpu: usize, device: &Device) -> Result<Self> {
        let log = Log::from_now()?;
        let mut bystander = Session::open(gpu, 1 << 20)?;
        bystander.there_and_back(1, [0, 0, 0], LENGTH).context("before the channel dies")?;
        let victim = Channel::open(device, Chip::of(device)?.mover())?;
        Ok(Self { gpu, log, bystander, victim })
    }

    /// Submits what is to kill the channel, with a buffer to wait for; the kernel's log must have `words`
    /// within `limit`.
    pub(super) fn dies_of(
        self,
        deadly: &Commands,
        buffer: &Buffer,
        words: &[&str],
        limit: Duration,
    ) -> Result<Figures> {
        let Self { gpu, mut log, mut bystander, mut victim } = self;
        let start = Instant::now();
        match victim.submit(deadly, &[buffer]) {
            Ok(()) => {}
            // The channel may be dead before the kernel has put its own fence behind the commands.
            Err(error) if died(&error).is_some() => {}
            Err(error) => return Err(error).context("submitting what is to kill the channel"),
        }
        let line = log.wait_for(words, limit)?;
        let line = line.with_context(|| format!("no {words:?} in the kernel's log within {limit:?}"))?;
        let noticed = start.elapsed();
        let code = until_refused(&mut victim)?;
        let killed = start.elapsed();
        // Whether the kernel calls that an error is its own affair; a waiter that stays is the host's to
        // report.
        let _ = buffer.wait();
        let released = start.elapsed();
        drop(victim);

        for turn in 0..8 {
            let copied = bystander.there_and_back(2 + turn, [0, 4096, 0], LENGTH);
            copied.context("the other channel, after one has died")?;
        }
        let mut newcomer = Session::open(gpu, 1 << 20).context("a channel opened after one has died")?;
        newcomer.there_and_back(99, [0, 0, 0], LENGTH).context("a channel opened after one has died")?;

        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut figures = Figures::new();
        figures.insert("line".into(), line.into());
        figures.insert("errno".into(), code.into());
        figures.insert("noticed_ms".into(), millis(noticed).into());
        figures.insert("killed_ms".into(), millis(killed).into());
        figures.insert("released_ms".into(), millis(released).into());
        Ok(figures)
    }
}

/// The error number, if it is one that a dead channel gives.
fn died(error: &anyhow::Error) -> Option<i32> {
    errno(error).filter(|code| matches!(*code, libc::ENODEV | libc::EIO))
}

/// Submits harmless commands until the kernel refuses them; returns its error number.
fn until_refused(channel: &mut Channel) -> Result<i32> {
    let mut harmless = Commands::new();
    harmless.bind(channel.engine().subchannel(), channel.class());
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
            bail!("the channel that died still takes work after {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}
