//! Compute shaders whose results are known exactly: floating-point work is on whole numbers that a float
//! holds.

use std::rc::Rc;

use anyhow::{Context, Result};

use super::{Extent, Figures, compare, rounded};
use crate::shaders;
use crate::vulkan::{Buffer, Commands, Device, Kernel, Place, Timing};

const WORDS: usize = 1 << 20;
/// What buffers hold before a shader writes them: a launch that runs nothing is seen by it.
pub const UNTOUCHED: u32 = 0x1111_1111;

/// Every invocation stores a constant: no inputs, so only the launch itself can fail.
pub fn constant(device: &Rc<Device>, extent: Extent) -> Result<Figures> {
    let result = Buffer::new(device, Place::Gpu, WORDS)?;
    let kernel = Kernel::new(device, shaders::CONSTANT, &[&result], &[])?;
    let (found, timing) = launch(device, &kernel, groups(256)?, &result, extent)?;
    compare::words(&found, |_| 0x600d_beef)?;
    Ok(figures(timing))
}

/// Adds two vectors.
pub fn vector_add(device: &Rc<Device>, extent: Extent) -> Result<Figures> {
    let left: Vec<u32> = (0..WORDS).map(compare::pattern).collect();
    let right: Vec<u32> = (0..WORDS).map(|index| compare::pattern(index + WORDS)).collect();
    let (left, right) = (on_gpu(device, &left)?, on_gpu(device, &right)?);
    let result = Buffer::new(device, Place::Gpu, WORDS)?;
    let kernel = Kernel::new(device, shaders::VECTOR_ADD, &[&left, &right, &result], &[])?;
    let (found, timing) = launch(device, &kernel, groups(256)?, &result, extent)?;
    compare::words(&found, |index| compare::pattern(index).wrapping_add(compare::pattern(index + WORDS)))?;
    Ok(figures(timing))
}

/// y = a x + y, with push constants, and a bound that leaves the last elements alone.
pub fn saxpy(device: &Rc<Device>, extent: Extent) -> Result<Figures> {
    const COUNT: u32 = (1 << 20) - 77;
    let x: Vec<u32> = (0..WORDS).map(|index| small(index, 1009).to_bits()).collect();
    let y: Vec<u32> = (0..WORDS).map(|index| small(index, 503).to_bits()).collect();
    let (x, y) = (on_gpu(device, &x)?, on_gpu(device, &y)?);
    let constants = [3.0f32.to_bits().to_le_bytes(), COUNT.to_le_bytes()].concat();
    let kernel = Kernel::new(device, shaders::SAXPY, &[&x, &y], &constants)?;
    let timing = quickest(device, &kernel, groups(128)?, extent.times)?;
    let times = number(extent.times);
    compare::words(&from_gpu(device, &y)?, |index| {
        let before = small(index, 503);
        let after = if index < COUNT as usize { times * 3.0 * small(index, 1009) + before } else { before };
        after.to_bits()
    })?;
    Ok(figures(timing))
}

/// A matrix product with tiles in shared memory. Its factors repeat after 7 and 5 elements, which no tile
/// does, so that every element of the product is known and few have to be computed.
pub fn matrix_product(device: &Rc<Device>, extent: Extent) -> Result<Figures> {
    const SIZE: usize = 512;
    let a = |row: usize, k: usize| small(row + 2 * k, 7) - 3.0;
    let b = |k: usize, column: usize| small(3 * k + column, 5) - 2.0;
    let fill = |of: &dyn Fn(usize, usize) -> f32| -> Vec<u32> {
        (0..SIZE * SIZE).map(|index| of(index / SIZE, index % SIZE).to_bits()).collect()
    };
    let (left, right) = (on_gpu(device, &fill(&a))?, on_gpu(device, &fill(&b))?);
    let result = Buffer::new(device, Place::Gpu, SIZE * SIZE)?;
    let constants = u32::try_from(SIZE)?.to_le_bytes();
    let kernel = Kernel::new(device, shaders::MATRIX_PRODUCT, &[&left, &right, &result], &constants)?;
    let tiles = u32::try_from(SIZE / 16)?;
    let (found, timing) = launch(device, &kernel, [tiles, tiles, 1], &result, extent)?;
    let products: Vec<f32> =
        (0..35).map(|index| (0..SIZE).map(|k| a(index / 5, k) * b(k, index % 5)).sum()).collect();
    compare::words(&found, |index| {
        let (row, column) = (index / SIZE, index % SIZE);
        products.get(row % 7 * 5 + column % 5).copied().unwrap_or(f32::NAN).to_bits()
    })?;
    Ok(figures(timing))
}

/// Sum, smallest and largest of a million numbers, by shared memory and atomics.
pub fn reduction(device: &Rc<Device>, extent: Extent) -> Result<Figures> {
    let numbers: Vec<u32> = (0..WORDS).map(|index| compare::pattern(index) | 1).collect();
    let expected = [
        numbers.iter().fold(0u32, |sum, number| sum.wrapping_add(*number)).wrapping_mul(extent.times),
        numbers.iter().copied().min().unwrap_or(0),
        numbers.iter().copied().max().unwrap_or(0),
        groups(256)?[0].wrapping_mul(extent.times),
    ];
    let numbers = on_gpu(device, &numbers)?;
    let result = on_gpu(device, &[0, u32::MAX, 0, 0])?;
    let kernel = Kernel::new(device, shaders::REDUCTION, &[&numbers, &result], &[])?;
    let timing = quickest(device, &kernel, groups(256)?, extent.times)?;
    compare::words(&from_gpu(device, &result)?, |index| expected.get(index).copied().unwrap_or(0))?;
    Ok(figures(timing))
}

/// Runs `kernel` over `result`, which is filled before and returned after.
fn launch(
    device: &Rc<Device>,
    kernel: &Kernel,
    groups: [u32; 3],
    result: &Buffer,
    extent: Extent,
) -> Result<(Vec<u32>, Timing)> {
    let mut commands = Commands::begin(device)?;
    commands.fill(result, UNTOUCHED);
    commands.run()?;
    let timing = quickest(device, kernel, groups, extent.times)?;
    Ok((from_gpu(device, result)?, timing))
}

/// Launches `kernel` so many times, each in a submission of its own. Gives the quickest one's times.
pub fn quickest(device: &Rc<Device>, kernel: &Kernel, groups: [u32; 3], times: u32) -> Result<Timing> {
    let launch = || {
        let mut commands = Commands::begin(device)?;
        commands.dispatch(kernel, groups);
        commands.run()
    };
    let mut timings = (0..times).map(|_| launch()).collect::<Result<Vec<_>>>()?;
    timings.sort_by(|one, other| one.gpu_us.total_cmp(&other.gpu_us));
    let first = timings.first().copied().context("No launch was asked for")?;
    // Each by itself: a process may have had the processor for a part of the quickest launch only.
    let cpu_us = timings.iter().map(|timing| timing.cpu_us).fold(first.cpu_us, f64::min);
    Ok(Timing { cpu_us, ..first })
}

/// Runs what was recorded, and compares what it leaves in `result`.
pub fn compared(device: &Rc<Device>, commands: Commands, result: &Buffer, right: &[u32]) -> Result<Figures> {
    let timing = commands.run()?;
    compare::words(&from_gpu(device, result)?, |index| right.get(index).copied().unwrap_or(0))?;
    Ok(figures(timing))
}

/// A buffer in GPU memory with `words` in it.
pub fn on_gpu(device: &Rc<Device>, words: &[u32]) -> Result<Buffer> {
    let source = Buffer::of(device, words)?;
    let buffer = Buffer::new(device, Place::Gpu, words.len())?;
    let mut commands = Commands::begin(device)?;
    commands.copy(&source, &buffer);
    commands.run()?;
    Ok(buffer)
}

/// What is in a buffer in GPU memory.
pub fn from_gpu(device: &Rc<Device>, buffer: &Buffer) -> Result<Vec<u32>> {
    let back = Buffer::new(device, Place::Host, buffer.words())?;
    let mut commands = Commands::begin(device)?;
    commands.copy(buffer, &back);
    commands.run()?;
    back.read()
}

/// Groups of `size` invocations for all words.
fn groups(size: usize) -> Result<[u32; 3]> {
    Ok([u32::try_from(WORDS / size)?, 1, 1])
}

/// A small whole number that a float holds exactly.
fn small(index: usize, modulus: usize) -> f32 {
    // CAST: below the modulus, which is small.
    #[expect(clippy::cast_precision_loss, reason = "below 2^24, so exact")]
    let number = (index % modulus) as f32;
    number
}

/// A small number as a float.
fn number(count: u32) -> f32 {
    small(count as usize, 1 << 16)
}

fn figures(timing: Timing) -> Figures {
    Figures::from_iter([
        ("gpu_us".into(), rounded(timing.gpu_us).into()),
        ("submit_us".into(), rounded(timing.submit_us).into()),
        ("wait_us".into(), rounded(timing.wait_us).into()),
        ("cpu_us".into(), rounded(timing.cpu_us).into()),
    ])
}
