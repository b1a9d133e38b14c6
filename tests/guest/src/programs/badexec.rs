//! `badexec`: memory that was mapped by VM_BIND, used, and unmapped must not be reached any more. Whoever
//! uses its address loses the channel; syncobjs that wait for it are released, other channels of the address
//! space go on.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::{Bound, Buffer, Device, Place, Syncobj, UserSpace, errno};
use crate::kmsg::Log;
use crate::push::Commands;
use crate::{pattern, stats};

const LENGTH: usize = 64 << 10;
/// The kernel gives a job up, and its channel, only after 10 s.
const LIMIT: Duration = Duration::from_secs(5);

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let chip = Chip::of(&Device::open(gpu)?)?;
    let mut log = Log::from_now()?;
    let mut space = UserSpace::open(gpu)?;
    let mut victim = space.channel(chip.mover())?;
    let mut bystander = space.channel(chip.engines().last().copied().context("the chip has no engine")?)?;
    let [mut source, mut target] = [
        Buffer::new(space.device(), Place::Gart, LENGTH)?,
        Buffer::new(space.device(), Place::Gart, LENGTH)?,
    ];
    let gone = Buffer::new(space.device(), Place::Vram, LENGTH)?;
    let (from, to, through) = (space.map(&source)?, space.map(&target)?, space.map(&gone)?);
    let contents = pattern::bytes(0xbad, 0, LENGTH);
    source.write(0, &contents)?;
    copy(&space, &mut victim, through, from)?.wait(LIMIT).context("while it is mapped")?;
    space.unmap(through, LENGTH)?;

    let start = Instant::now();
    let released = copy(&space, &mut victim, through, from).context("submitting the address that is gone")?;
    // Whether the kernel calls that an error is its own affair.
    let waited = released.wait(LIMIT);
    let released = start.elapsed();
    ensure!(released < LIMIT, "the syncobj of the killed channel is not released: {waited:?}");
    let address = format!("{through:016x}");
    let line = log.wait_for(&chip.fault_words(&address)?, LIMIT)?;
    let line = line.with_context(|| format!("no fault at {through:#x} in the kernel's log"))?;
    let code = match copy(&space, &mut victim, to, from) {
        Ok(_) => bail!("the channel with the bad address still takes work"),
        Err(error) => errno(&error).context("the channel fails without an error number")?,
    };
    ensure!(code == libc::ENODEV, "the channel with the bad address fails with error {code}");

    copy(&space, &mut bystander, to, from)?.wait(LIMIT).context("the other channel, after the fault")?;
    let mut found = vec![0; LENGTH];
    target.read(0, &mut found)?;
    if let Some(difference) = pattern::difference(&found, &contents) {
        bail!("the other channel's copy went wrong: {difference}");
    }
    let mut figures = Figures::new();
    figures.insert("line".into(), line.into());
    figures.insert("released_ms".into(), stats::round(released.as_secs_f64() * 1e3).into());
    Ok(figures)
}

/// Starts a copy; returns what is signalled when it is done.
fn copy(space: &UserSpace, channel: &mut Bound, to: u64, from: u64) -> Result<Syncobj> {
    let done = Syncobj::new(space.device())?;
    let mut commands = Commands::new();
    channel.engine().copy(&mut commands, to, from, LENGTH as u64);
    channel.execute(&commands, &[], &[&done])?;
    Ok(done)
}
