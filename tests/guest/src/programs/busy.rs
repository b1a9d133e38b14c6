//! `busy`: keeps the GPU at work for a while, with pieces that all take it equally long, and reports how many
//! it did when. The host compares guests: the GPU's clock is one for all of them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gpuvmk_kernels::launch::Parameters;
use gpuvmk_kernels::spin;

use super::{Figures, Options};
use crate::chip::Chip;
use crate::compute::Compute;
use crate::drm::{Bound, Device, Mapped, Place, Syncobj, UserSpace};
use crate::engine::turing;
use crate::push::Commands;
use crate::stamps::Stamps;
use crate::stats;

/// Pieces under way: enough that the GPU never waits for this program.
const DEPTH: usize = 4;
/// The width of a slot of time.
const SLOT_NANOS: u64 = 100_000_000;
const COPY: usize = 16 << 20;
const LIMIT: Duration = Duration::from_secs(30);

/// Pieces that were done, by the slot of the GPU's time in which each ended.
type Done = BTreeMap<u64, u64>;

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let device = Device::open(gpu)?;
    let chip = Chip::of(&device)?;
    chip.classes()?;
    let time = Duration::from_secs(options.get("secs", 5)?);
    let (done, nanos) = match options.get("work", "copy".to_owned())?.as_str() {
        "copy" => {
            let mut space = UserSpace::open(gpu)?;
            let mut channel = space.channel(chip.mover())?;
            let (from, to): (Mapped, Mapped) =
                (space.mapped(Place::Vram, COPY)?, space.mapped(Place::Vram, COPY)?);
            let mut stamps = Stamps::new(&mut space)?;
            let mut piece = Commands::new();
            turing::copy_line(&mut piece, to.1, from.1, COPY as u64);
            work(space.device(), &mut channel, &mut stamps, &piece, time)?
        }
        "compute" => {
            let kernels = chip.kernels()?;
            let mut compute = Compute::open(gpu, kernels, 4096)?;
            let out = compute.buffer(spin::THREADS as usize * 4)?;
            let parameters = Parameters::default().pointer(out.1).word(spin::ROUNDS).word(1);
            let piece = compute.prepare(&kernels.spin, spin::GRID, spin::BLOCK, &parameters)?;
            let (device, channel, stamps) = compute.parts();
            work(device, channel, stamps, &piece, time)?
        }
        other => bail!("there is no work '{other}': there are copy, compute"),
    };
    let mut figures = Figures::new();
    let pieces: u64 = done.values().sum();
    figures.insert("pieces".into(), pieces.into());
    // CAST: both far below 2^53.
    figures.insert("piece_gpu_us".into(), stats::round(nanos as f64 / 1e3 / pieces.max(1) as f64).into());
    let slots: Vec<[u64; 2]> = done.into_iter().map(|(slot, count)| [slot, count]).collect();
    figures.insert("slots".into(), serde_json::json!(slots));
    Ok(figures)
}

/// Works for `time`; returns what was done when, and the sum of the times between the pieces' stamps.
fn work(
    device: &Device,
    channel: &mut Bound,
    stamps: &mut Stamps,
    piece: &Commands,
    time: Duration,
) -> Result<(Done, u64)> {
    let pieces: Vec<Commands> = (0..DEPTH).map(|slot| stamps.around(channel.engine(), slot, piece)).collect();
    let (mut done, mut nanos) = (Done::new(), 0u64);
    let mut under_way: VecDeque<(usize, Syncobj)> = VecDeque::new();
    let start = Instant::now();
    for (slot, commands) in pieces.iter().enumerate().cycle() {
        if under_way.len() == DEPTH || start.elapsed() >= time {
            let Some((slot, fence)) = under_way.pop_front() else { break };
            fence.wait(LIMIT).context("a piece of work")?;
            let (begin, end) = stamps.read(slot)?;
            *done.entry(end / SLOT_NANOS).or_default() += 1;
            nanos += end.saturating_sub(begin);
            if start.elapsed() >= time {
                continue;
            }
        }
        let fence = Syncobj::new(device)?;
        channel.execute(commands, &[], &[&fence])?;
        under_way.push_back((slot, fence));
    }
    Ok((done, nanos))
}
