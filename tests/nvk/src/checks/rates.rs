//! How fast shaders run: launches, memory bandwidth, multiply-adds. Each result is still compared.

use std::rc::Rc;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::{Extent, Figures, compare, compute, rounded};
use crate::shaders;
use crate::vulkan::{Buffer, Commands, Device, Kernel, Place, Timing};

/// Invocations of the multiply-add shader: enough to fill every SM several times.
const INVOCATIONS: u32 = 1 << 20;
/// Chains of an invocation, and steps of a round, as the shader has them.
const CHAINS: u32 = 8;
const STEPS: u32 = 16;
/// Timed launches; the quickest counts.
const TRIES: u32 = 5;

/// Many small launches in one submission.
pub fn launches(device: &Rc<Device>) -> Result<Figures> {
    const COUNT: u32 = 1000;
    let result = Buffer::new(device, Place::Gpu, 256)?;
    let kernel = Kernel::new(device, shaders::CONSTANT, &[&result], &[])?;
    let mut commands = Commands::begin(device)?;
    for _ in 0..COUNT {
        commands.dispatch(&kernel, [1, 1, 1]);
    }
    let timing = commands.run()?;
    compare::words(&compute::from_gpu(device, &result)?, |_| 0x600d_beef)?;
    Ok(Figures::from_iter([
        ("launches".into(), COUNT.into()),
        ("us_each".into(), rounded(timing.gpu_us / f64::from(COUNT)).into()),
    ]))
}

/// Copies 48 MiB within GPU memory by a shader: together more than the 50 or 60 MB that a Hopper caches, and
/// little enough for a vGPU whose memory is all behind a BAR1 of 256 MiB.
pub fn stream(device: &Rc<Device>) -> Result<Figures> {
    const WORDS: usize = 12 << 20;
    let (source, target) = (Buffer::new(device, Place::Gpu, WORDS)?, Buffer::new(device, Place::Gpu, WORDS)?);
    let kernel = Kernel::new(device, shaders::STREAM, &[&source, &target], &[])?;
    let mut commands = Commands::begin(device)?;
    commands.fill(&source, 0x5a5a_1234);
    commands.fill(&target, 0);
    commands.run()?;
    let groups = [u32::try_from(WORDS / 4 / 256)?, 1, 1];
    let gpu_us = quickest(device, &kernel, groups)?.gpu_us;
    // The end of the target stands for all of it.
    compare::words(&end_of(device, &target)?, |_| 0x5a5a_1234)?;
    let bytes = target.bytes() + source.bytes();
    // CAST: below 2^53.
    #[expect(clippy::cast_precision_loss, reason = "a hundred million bytes")]
    let rate = bytes as f64 / gpu_us / 1e3;
    Ok(Figures::from_iter([
        ("bytes".into(), bytes.into()),
        ("gpu_us".into(), rounded(gpu_us).into()),
        ("gb_per_s".into(), rounded(rate).into()),
    ]))
}

fn end_of(device: &Rc<Device>, buffer: &Buffer) -> Result<Vec<u32>> {
    const TAIL: usize = 1 << 20;
    let back = Buffer::new(device, Place::Host, TAIL)?;
    let mut commands = Commands::begin(device)?;
    commands.copy_end(buffer, &back);
    commands.run()?;
    back.read()
}

/// Multiply-adds of single-precision numbers.
pub fn peak_fp32(device: &Rc<Device>, extent: Extent) -> Result<Figures> {
    let ones = [1.0f32.to_le_bytes(), 1.0f32.to_le_bytes()].concat();
    peak(device, shaders::PEAK_FP32, &ones, extent.rounds.unwrap_or(2048), |words, sum| {
        #[expect(clippy::cast_precision_loss, reason = "below 2^24, so exact")]
        let expected = sum as f32;
        words == [expected.to_bits()]
    })
}

/// Multiply-adds of double-precision numbers.
pub fn peak_fp64(device: &Rc<Device>, extent: Extent) -> Result<Figures> {
    if !device.doubles {
        return Ok(Figures::from_iter([("skipped".into(), "the driver offers no shaderFloat64".into())]));
    }
    let ones = [1.0f64.to_le_bytes(), 1.0f64.to_le_bytes()].concat();
    peak(device, shaders::PEAK_FP64, &ones, extent.rounds.unwrap_or(1024), |words, sum| {
        let bits = f64::from(sum).to_bits().to_le_bytes();
        words.iter().flat_map(|word| word.to_le_bytes()).eq(bits)
    })
}

/// Multiply-adds of whole numbers.
pub fn peak_int32(device: &Rc<Device>, extent: Extent) -> Result<Figures> {
    let ones = [1u32.to_le_bytes(), 1u32.to_le_bytes()].concat();
    peak(device, shaders::PEAK_INT32, &ones, extent.rounds.unwrap_or(1024), |words, sum| words == [sum])
}

/// Runs a shader of multiply-adds by one and with one: each step counts one up, whatever the type.
fn peak(
    device: &Rc<Device>,
    spirv: &[u8],
    ones: &[u8],
    rounds: u32,
    is: impl Fn(&[u32], u32) -> bool,
) -> Result<Figures> {
    let element = ones.len() / 8;
    let constants = [ones, &rounds.to_le_bytes()].concat();
    let result = Buffer::new(device, Place::Gpu, INVOCATIONS as usize * element)?;
    let kernel = Kernel::new(device, spirv, &[&result], &constants)?;
    let timing = quickest(device, &kernel, [INVOCATIONS / 256, 1, 1])?;
    let gpu_us = timing.gpu_us;
    let found = compute::from_gpu(device, &result)?;
    let wrong = (0u32..).zip(found.chunks(element)).filter(|(index, words)| {
        // Chain n begins at (index mod 8) + n; the sum of eight chains.
        let sum = CHAINS * (index % 8) + CHAINS * (CHAINS - 1) / 2 + CHAINS * STEPS * rounds;
        !is(words, sum)
    });
    let wrong = wrong.count();
    ensure!(wrong == 0, "{wrong} of {INVOCATIONS} results are wrong");
    let steps = f64::from(INVOCATIONS) * f64::from(CHAINS) * f64::from(STEPS) * f64::from(rounds);
    Ok(Figures::from_iter([
        ("gpu_us".into(), rounded(gpu_us).into()),
        ("cpu_us".into(), rounded(timing.cpu_us).into()),
        // A multiply-add counts as two operations.
        ("tera_ops_per_s".into(), Value::from(rounded(2.0 * steps / gpu_us / 1e6))),
    ]))
}

fn quickest(device: &Rc<Device>, kernel: &Kernel, groups: [u32; 3]) -> Result<Timing> {
    let best = compute::quickest(device, kernel, groups, TRIES)?;
    ensure!(best.gpu_us > 0.0, "The GPU's timestamps say that the launch took no time");
    Ok(best)
}
