//! `compute`: kernels of our own on the shader cores, every result checked by the processor.
//!
//! `spin` runs a millisecond and longer, so that its time is the GPU's and not a submission's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk_kernels::launch::{Parameters, Size3};
use gpuvmk_kernels::{Kernels, spin};

use super::{Figures, Options};
use crate::chip::Chip;
use crate::compute::Compute;
use crate::drm::{Device, Mapped};
use crate::kmsg::Log;
use crate::{pattern, stats};

/// Elements of the vectors and of the reduction: no multiple of a block's.
const COUNT: u32 = (1 << 18) + 77;
/// Rows and columns of the matrices.
const SIDE: u32 = 128;
/// Threads of a block.
const BLOCK: u32 = 256;
/// How often `spin` runs.
const REPEATS: usize = 20;
/// How much longer a run is that only warms up.
const WARM_UP: u32 = 100;
const LARGEST: usize = 4 << 20;

pub fn run(options: &Options) -> Result<Figures> {
    let mut log = Log::from_now()?;
    match everything(options) {
        Ok(figures) => Ok(figures),
        Err(error) => match log.wait_for(&["nouveau", "killed"], Duration::ZERO)? {
            Some(line) => Err(error.context(format!("the kernels' channel was lost: {line}"))),
            None => Err(error),
        },
    }
}

fn everything(options: &Options) -> Result<Figures> {
    let kernels = Chip::of(&Device::open(options.gpu()?)?)?.kernels()?;
    let mut compute = Compute::open(options.gpu()?, kernels, LARGEST)?;
    let compute = &mut compute;
    let mut figures = Figures::new();
    let mut note = |name: &str, times: &[Duration]| {
        figures.insert(name.to_owned(), stats::percentile_us(times, 50).into());
    };
    note("vector_add_gpu_us", &[vector_add(compute, kernels)?]);
    note("matrix_product_gpu_us", &[matrix_product(compute, kernels)?]);
    note("reduce_sum_gpu_us", &[reduce_sum(compute, kernels)?]);
    let (gpu, wall) = spins(compute, kernels, options)?;
    note("spin_gpu_us", &gpu);
    note("spin_wall_us", &wall);
    Ok(figures)
}

fn vector_add(compute: &mut Compute, kernels: &Kernels) -> Result<Duration> {
    // Whole numbers below 2^23: sums are exact.
    let values = |seed| floats(&pattern::bytes(seed, 0, COUNT as usize * 4));
    let (left, right) = (values(1), values(2));
    let (a, b) = (filled(compute, &bytes_of(&left))?, filled(compute, &bytes_of(&right))?);
    let sum = filled(compute, &vec![0xff; COUNT as usize * 4])?;
    let parameters = Parameters::default().pointer(a.1).pointer(b.1).pointer(sum.1).word(COUNT);
    let grid = Size3(COUNT.div_ceil(BLOCK), 1, 1);
    let time = compute.run(&kernels.vector_add, grid, Size3(BLOCK, 1, 1), &parameters)?;
    let wanted: Vec<f32> = left.iter().zip(&right).map(|(left, right)| left + right).collect();
    compare(compute, &sum, &bytes_of(&wanted)).context("vector_add")?;
    Ok(time)
}

fn matrix_product(compute: &mut Compute, kernels: &Kernels) -> Result<Duration> {
    let side = SIDE as usize;
    // Small whole numbers: every partial sum is exact, in whatever order.
    let values = |seed| -> Vec<f32> {
        pattern::bytes(seed, 0, side * side).iter().map(|byte| f32::from(*byte) - 128.0).collect()
    };
    let (left, right) = (values(3), values(4));
    let (a, b) = (filled(compute, &bytes_of(&left))?, filled(compute, &bytes_of(&right))?);
    let product = filled(compute, &vec![0xff; side * side * 4])?;
    let parameters = Parameters::default().pointer(a.1).pointer(b.1).pointer(product.1).word(SIDE);
    let grid = Size3(SIDE / 16, SIDE / 16, 1);
    let time = compute.run(&kernels.matrix_product, grid, Size3(16, 16, 1), &parameters)?;
    let mut wanted = vec![0.0f32; side * side];
    for (row, left) in wanted.chunks_mut(side).zip(left.chunks(side)) {
        for (factor, right) in left.iter().zip(right.chunks(side)) {
            row.iter_mut().zip(right).for_each(|(sum, value)| *sum += factor * value);
        }
    }
    compare(compute, &product, &bytes_of(&wanted)).context("matrix_product")?;
    Ok(time)
}

fn reduce_sum(compute: &mut Compute, kernels: &Kernels) -> Result<Duration> {
    const START: u64 = 5;
    let contents = pattern::bytes(5, 0, COUNT as usize * 4);
    let values = filled(compute, &contents)?;
    let total = filled(compute, &START.to_le_bytes())?;
    let parameters = Parameters::default().pointer(values.1).pointer(total.1).word(COUNT);
    let time = compute.run(&kernels.reduce_sum, Size3(64, 1, 1), Size3(BLOCK, 1, 1), &parameters)?;
    let wanted = words(&contents).fold(START, |sum, word| sum + u64::from(word));
    compare(compute, &total, &wanted.to_le_bytes()).context("reduce_sum")?;
    Ok(time)
}

/// The GPU's times, and those from submission to wake-up.
fn spins(
    compute: &mut Compute,
    kernels: &Kernels,
    options: &Options,
) -> Result<(Vec<Duration>, Vec<Duration>)> {
    const SEED: u32 = 12345;
    let rounds: u32 = options.get("rounds", spin::ROUNDS)?;
    let warm_up = rounds.saturating_mul(options.get("warm", WARM_UP)?);
    let out = filled(compute, &vec![0xff; spin::THREADS as usize * 4])?;
    let with_rounds = |rounds| Parameters::default().pointer(out.1).word(rounds).word(SEED);
    // Long runs first: a GPU that was idle raises its clocks only under load.
    for _ in 0..2 {
        compute.run(&kernels.spin, spin::GRID, spin::BLOCK, &with_rounds(warm_up))?;
    }
    let parameters = with_rounds(rounds);
    let (mut gpu, mut wall) = (Vec::new(), Vec::new());
    for _ in 0..options.get("repeats", REPEATS)? {
        let start = Instant::now();
        gpu.push(compute.run(&kernels.spin, spin::GRID, spin::BLOCK, &parameters)?);
        wall.push(start.elapsed());
    }
    let wanted: Vec<u8> = (0..spin::THREADS)
        .flat_map(|thread| spin::result(SEED.wrapping_add(thread), rounds).to_le_bytes())
        .collect();
    compare(compute, &out, &wanted).context("spin")?;
    Ok((gpu, wall))
}

/// VRAM with these contents.
fn filled(compute: &mut Compute, contents: &[u8]) -> Result<Mapped> {
    let buffer = compute.buffer(contents.len())?;
    compute.write(&buffer, contents)?;
    Ok(buffer)
}

fn compare(compute: &mut Compute, found: &Mapped, wanted: &[u8]) -> Result<()> {
    let found = compute.read(found, wanted.len())?;
    let difference = pattern::difference(&found, wanted);
    ensure!(difference.is_none(), "the result is wrong: {}", difference.unwrap_or_default());
    Ok(())
}

/// Words as whole numbers that a float holds exactly.
fn floats(bytes: &[u8]) -> Vec<f32> {
    // CAST: 23 bits fit a float's mantissa.
    words(bytes).map(|word| (word >> 9) as f32).collect()
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_the_vectors_are_exact() {
        let values = floats(&[0xff; 8]);
        assert_eq!(values, [8_388_607.0, 8_388_607.0]);
        assert_eq!(values[0] + values[1] - 1.0, 16_777_213.0);
    }
}
